package front

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

func TestAPanicIsLoggedAndBreaksTheRequest(t *testing.T) {
	var logged strings.Builder
	log := funcr.New(func(_, text string) { logged.WriteString(text) }, funcr.Options{})
	req := httptest.NewRequestWithContext(klog.NewContext(t.Context(), log), http.MethodGet, "/clusters/root/api", nil)
	req.Header.Set("Authorization", "Bearer x")
	func() {
		defer func() {
			if fault := recover(); fault != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
				t.Errorf("net/http gets %v", fault)
			}
		}()
		(&Front{}).ServeHTTP(httptest.NewRecorder(), req) // it was not made with New, and has nothing
	}()
	for _, want := range []string{"report this fault", "/clusters/root/api", "nil pointer", "handler_test.go"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("%q is not in the log: %s", want, logged.String())
		}
	}
}

// Two scrapes at the same time see all shards.
func TestAShardThatIsKnownIsInEveryScrape(t *testing.T) {
	registerMetrics()
	m := newMembers(t)
	eu1, err := newShard(m.cfg, "eu1", "", []string{m.down()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(eu1.replicas.close)
	f := &Front{index: newIndex("root"), inflight: newInflight(Limits{}), shards: map[string]*shard{"eu1": eu1}}
	f.measure()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				f.measure()
			}
		}
	}()
	isThere := func() bool {
		answer := httptest.NewRecorder()
		legacyregistry.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return strings.Contains(answer.Body.String(), `regent_front_shard_heard{shard="eu1"} 0`)
	}
	for range 200 {
		if !isThere() {
			t.Error("a scrape lacks the shard")
			break
		}
	}
	close(stop)
	<-ended
	if unmeasure("eu1"); isThere() {
		t.Error("a shard that was removed is still there")
	}
}
