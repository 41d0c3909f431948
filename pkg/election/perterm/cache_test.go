package perterm_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/regent-project/regent/pkg/election/perterm"
)

// A handler that looks at once need not look again: client-go, for controllers, does that only after 100 ms.
func TestAHandlerThatATermAddsToAFullCacheHasSeenIt(t *testing.T) {
	type look struct {
		epoch int64
		how   string
		full  bool
	}
	looked := make(chan look, 100)
	w := begin(t, perterm.Options{Warm: []client.Object{&corev1.ConfigMap{}}}, func(m *perterm.Manager) error {
		i, err := m.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		if err != nil {
			return err
		}
		h := toolscache.ResourceEventHandlerFuncs{}
		for how, add := range map[string]func() (toolscache.ResourceEventHandlerRegistration, error){
			"AddEventHandler": func() (toolscache.ResourceEventHandlerRegistration, error) { return i.AddEventHandler(h) },
			"AddEventHandlerWithResyncPeriod": func() (toolscache.ResourceEventHandlerRegistration, error) {
				return i.AddEventHandlerWithResyncPeriod(h, time.Hour)
			},
			"AddEventHandlerWithOptions": func() (toolscache.ResourceEventHandlerRegistration, error) {
				return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
			},
		} {
			added, err := add()
			if err != nil {
				return err
			}
			looked <- look{m.Term.Epoch(), how, added.HasSynced()}
		}
		return setUp(m, nil)
	})
	defer w.stop()
	w.awaitEpoch(1)
	w.stepDown("the next, please")
	w.awaitEpoch(2)
	for range 6 {
		if l := <-looked; !l.full {
			t.Errorf("%s of term %d returned before its handler had seen the cache", l.how, l.epoch)
		}
	}
}

// A cache of several namespaces waits, on a goroutine for each handler, until the handler has seen everything. If the
// term ends before, that is never.
func TestATermThatEndsBeforeItsHandlersHaveSeenTheCacheIsOver(t *testing.T) {
	gate, lent := make(chan struct{}), make(chan cache.Cache, 1)
	w := beginIn(t, func(o *manager.Options) {
		o.Cache.DefaultNamespaces = map[string]cache.Config{"default": {}, "another": {}}
	}, perterm.Options{Warm: []client.Object{&corev1.ConfigMap{}}}, func(m *perterm.Manager) error {
		if m.Term.Epoch() > 1 {
			return setUp(m, nil)
		}
		lent <- m.GetCache()
		i, err := m.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		if err != nil {
			return err
		}
		_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-gate }})
		return err
	})
	defer w.stop()
	for _, name := range []string{"two", "three"} {
		w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	full := <-lent
	eventually(t, "all in the cache", func() bool {
		return full.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "three"}, &corev1.ConfigMap{}) == nil
	})
	w.stepDown("the next, please")
	eventually(t, "quarantine", func() bool { return w.elector.Status().State == "quarantined" })
	close(gate)
	w.awaitEpoch(2)
}
