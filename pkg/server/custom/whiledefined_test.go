package custom

import (
	"context"
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/server/premise"
	serverstorage "github.com/regent-project/regent/pkg/server/storage"
)

// A replica that has not heard of a change lets a creation in. Storage refuses it, and then the definition is read
// again.
func TestACreationDependsOnTheDefinitionAsItIs(t *testing.T) {
	same := &Content{spec: &apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com"}, names: &apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets"}}
	at := func(c *Content, revision int64, terminating bool) *Definition {
		return &Definition{Content: c, Terminating: terminating, when: premise.Condition{Name: "widgets.example.com", Revision: revision}}
	}
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		// now is the definition as storage has it.
		now      *Definition
		fails    error
		is       func(error) bool
		attempts int
	}{
		"as it was":          {at(same, 7, false), nil, func(err error) bool { return err == nil }, 1},
		"labelled meanwhile": {at(same, 9, false), nil, func(err error) bool { return err == nil }, 2},
		"being deleted":      {at(same, 9, true), nil, apierrors.IsForbidden, 1},
		"gone":               {nil, nil, apierrors.IsForbidden, 1},
		"another schema":     {at(&Content{spec: same.spec, names: same.names}, 9, false), nil, apierrors.IsServerTimeout, 1},
		"cannot be read":     {nil, broken, func(err error) bool { return errors.Is(err, broken) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			known := at(same, 7, false)
			again := func(context.Context) (*Definition, error) { return tc.now, tc.fails }
			known.again = again
			if tc.now != nil {
				tc.now.again = again
			}
			attempts := 0
			err := whileDefined(withDefinition(t.Context(), known), func(context.Context) error {
				attempts++
				if tc.now != nil && (tc.now.when.Revision == 7 || attempts > 1) {
					return nil
				}
				return serverstorage.ErrConditionUnmet
			})
			if !tc.is(err) || attempts != tc.attempts {
				t.Errorf("%d attempts: %v", attempts, err)
			}
		})
	}
}
