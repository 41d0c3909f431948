package perterm

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// A manager heeds the error of the inspection only when it has started everything: by then nothing may be there that
// runs.
func TestWhatIsLeftOnAManagerIsTakenOutBeforeItRuns(t *testing.T) {
	process, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		Metrics:        server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := process.Add(manager.RunnableFunc(func(context.Context) error { t.Error("it runs"); return nil })); err != nil {
			t.Fatal(err)
		}
	}
	why := errors.New("why")
	takeOut(process, why)
	there := leftovers(process)
	if len(there) != 2 {
		t.Fatalf("%d runnables are left, want 2", len(there))
	}
	for _, r := range there {
		if err := r.Interface().(manager.Runnable).Start(t.Context()); !errors.Is(err, why) {
			t.Errorf("it returns %v", err)
		}
	}
}
