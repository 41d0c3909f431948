package leader

import (
	"os"
	"runtime/debug"
	"testing"
)

// A process asks for each election that it begins. The collector would close what is left, some time.
func TestToAskForTheRouteLeavesNoDescriptor(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	open := func() int {
		t.Helper()
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	const often = 50
	before := open()
	for range often {
		if _, err := thisMachine.route("127.0.0.1:443"); err != nil {
			t.Fatal(err)
		}
	}
	if after := open(); after > before+often/2 { // others may have some for a moment
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
