package control_test

import (
	"testing"

	"go.uber.org/goleak"
	// as kube-apiserver has it: other providers of client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}
