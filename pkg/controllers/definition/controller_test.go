package definition

import (
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// some returns a definition that is established, one that is not yet, and one that waits for its objects.
func some() (established, undecided, waiting *apiextensionsv1.CustomResourceDefinition) {
	established = controllertest.Definition("x", "example.com", "Widget", apiextensionsv1.ClusterScoped)
	undecided = controllertest.Definition("x", "example.org", "Gizmo", apiextensionsv1.ClusterScoped)
	undecided.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	waiting = controllertest.Definition("x", "example.net", "Gadget", apiextensionsv1.ClusterScoped)
	now := metav1.Unix(1000, 0)
	waiting.DeletionTimestamp, waiting.Finalizers = &now, []string{apiextensionsv1.CustomResourceCleanupFinalizer}
	return established, undecided, waiting
}

func TestTheControllerKeepsTheContractOfControllers(t *testing.T) {
	new(controllertest.Server).Check(t, Descriptor(), func(t *testing.T) controllers.Deps {
		established, undecided, waiting := some()
		return controllers.Deps{Informers: controllertest.WithCustom(t, controllers.Informers{}, controllertest.NewSource(established, undecided, waiting), nil)}
	})
}

func TestAGroupOfWhichNothingIsDueIsLeftAlone(t *testing.T) {
	established, undecided, waiting := some()
	deps := controllers.Deps{Informers: controllertest.WithCustom(t, controllers.Informers{}, controllertest.NewSource(established, undecided, waiting), nil)}
	c, err := construct(t.Context(), deps)
	if err != nil {
		t.Fatal(err)
	}
	for d, due := range map[definition]bool{established: false, undecided: true, waiting: true} {
		if got := c.(*controller).changed(d); len(got) > 0 != due {
			t.Errorf("%s: queues %v", d.Name, got)
		}
	}
	gone := controllertest.Definition("x", "example.com", "Gone", apiextensionsv1.ClusterScoped)
	if got := c.(*controller).changed(gone); len(got) != 1 || got[0] != (key{what: aGroup, of: clusters.Key{Cluster: "x", Name: "example.com"}}) {
		t.Errorf("one that has gone may leave its names to others; queued: %v", got)
	}
}

// A definition may come with a name that sorts before that of one which has just got what it wants.
func TestALateCacheGivesNoNameAwayTwice(t *testing.T) {
	first, second := wanting(2, ofKind("a")), wanting(1, ofKind("a"))
	first.Name, first.ResourceVersion = "first", "7"
	second.Name, second.ResourceVersion = "second", "8"
	l := newLedger([]definition{first})
	written := l.due()[0]
	written.ResourceVersion = "9"
	l.wrote(written)
	l.show(first.Name, first) // the cache has not got what was written
	l.show(second.Name, second)
	due := l.due()
	if len(due) != 1 || due[0].Name != "second" || due[0].Status.AcceptedNames.Plural != "" {
		t.Errorf("due: %v", due)
	}
	if l.unseen.Len() != 1 {
		t.Errorf("not seen yet: %v", l.unseen)
	}
	l.show(written.Name, written)
	if l.unseen.Len() != 0 {
		t.Errorf("the cache has it: %v", l.unseen)
	}
}

// I5: a term may be long, and definitions and whole clusters come and go in it.
func TestWhatHasGoneIsForgotten(t *testing.T) {
	d := controllertest.Definition("x", "example.com", "Widget", apiextensionsv1.ClusterScoped)
	of := clusters.Key{Cluster: "x", Name: "example.com"}
	g := &groups{all: map[clusters.Key]*group{}, checked: map[logicalcluster.Name]*checked{of.Cluster: {has: true}}}
	for _, there := range []bool{true, false} {
		l := newLedger([]definition{d})
		if !there {
			l.show(d.Name, nil)
		}
		g.all[of] = &group{ledger: l}
		g.leave(of)
		if len(g.all) != 0 || (g.checked[of.Cluster] != nil) != there {
			t.Errorf("with a definition %t: groups %v, checked %v", there, g.all, g.checked)
		}
	}
}
