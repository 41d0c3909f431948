package control_test

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/leaderelection"
)

func TestMain(m *testing.M) {
	leaderelection.SetProvider(others{}) // as kube-apiserver has it: other providers of client-go's metrics
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

type others struct{}

func (others) NewLeaderMetric() leaderelection.LeaderMetric { return others{} }
func (others) On(string)                                    {}
func (others) Off(string)                                   {}
func (others) SlowpathExercised(string)                     {}
