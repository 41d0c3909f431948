package garbagecollector

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func uid(name string) types.UID { return types.UID("uid-of-" + name) }
