package control_test

import (
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/election/control"
)

// Each fault of the policies is named, so that one look is enough.
func TestWhatIsWrongWithPoliciesIsNamed(t *testing.T) {
	policies := control.Policies{Default: "nope", Controllers: map[string]control.Policy{"elsewhere": control.Exit, "there": "never"}}
	err := policies.Validate([]string{"there"})
	for _, want := range []string{`unknown failure policy "nope"`, `controller "elsewhere", which is not registered`, `unknown failure policy "never" for controller "there"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
	sound := control.Policies{Default: control.StepDown, Controllers: map[string]control.Policy{"there": control.Exit}}
	if err := sound.Validate([]string{"there"}); err != nil {
		t.Error(err)
	}
	if err := (control.Policies{}).Validate(nil); err != nil {
		t.Error(err)
	}
}
