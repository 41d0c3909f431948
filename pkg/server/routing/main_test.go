package routing_test

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	// The second one spaces error logs by the time of the last error in the process: after one in real time, one in
	// a synctest bubble would sleep for decades.
	runtime.ErrorHandlers = runtime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}
