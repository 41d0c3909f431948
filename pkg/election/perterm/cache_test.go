package perterm_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/regent-project/regent/pkg/election/perterm"
)

// Who looks at once need not look again: client-go, for controllers, does that only after 100 ms.
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
	if _, err := w.elector.StepDown("the next, please", ""); err != nil {
		t.Fatal(err)
	}
	w.awaitEpoch(2)
	for range 6 {
		if l := <-looked; !l.full {
			t.Errorf("%s of term %d returned before its handler had seen the cache", l.how, l.epoch)
		}
	}
}
