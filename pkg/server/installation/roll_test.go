package installation

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/pki"
)

// An authority is rolled only where nobody else has what it has signed.
func TestMembersBesideTheRootShardAreFound(t *testing.T) {
	f := newFakes(t)
	others, err := f.admin.Others(t.Context())
	if must(t, err); len(others) > 0 {
		t.Errorf("a lone shard has members %q", others)
	}
	f.join("eu1")
	_, err = f.admin.AddFront(t.Context(), f.bundle, "gate")
	must(t, err)
	others, err = f.admin.Others(t.Context())
	must(t, err)
	slices.Sort(others)
	if !slices.Equal(others, []string{"front gate", "shard eu1"}) {
		t.Errorf("members %q", others)
	}
}

// A server that shows another authority's certificate does not pass for one that has heard of the new one.
func TestAServerIsAskedWithWhatTheNextStepNeeds(t *testing.T) {
	f := newFakes(t)
	stranger, err := pki.Ensure(t.TempDir())
	must(t, err)
	url := f.shards["root"].url
	err = Accepts(t.Context(), &rest.Config{Host: url + "/clusters/root", TLSClientConfig: rest.TLSClientConfig{CAData: stranger.CAPEM}})
	if err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with an authority that it does not know: %v", err)
	}
}
