package front

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
)

// scrape is a front whose root shard lets the user scraper and the token good read metrics.
type scrape struct {
	*members
	front *Front
	// status is what the root shard answers instead. 0: as it should.
	status atomic.Int64
	// questions counts what it is asked.
	questions atomic.Int64
}

func newScraped(t *testing.T) *scrape {
	t.Helper()
	s := &scrape{members: newMembers(t)}
	var err error
	if s.front, err = New(s.cfg); err != nil {
		t.Fatal(err)
	}
	server := s.serveAs("root", func(w http.ResponseWriter, req *http.Request) {
		s.questions.Add(1)
		token, status := req.Header.Get("Authorization"), int(s.status.Load())
		switch {
		case status != 0:
		case req.URL.Path != metricsPath || req.Method != http.MethodGet:
			status = http.StatusNotFound
		case token == "Bearer good", token == "" && req.Header.Get(clusters.RemoteUserHeader) == "scraper":
			status = http.StatusOK
		case token != "":
			status = http.StatusUnauthorized
		default:
			status = http.StatusForbidden
		}
		w.WriteHeader(status)
	})
	root, err := newShard(s.front.cfg, "root", "", []string{server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.replicas.close)
	s.front.shards["root"] = root
	return s
}

// scrape asks the front for its metrics.
func (s *scrape) scrape(who user.Info, token string) (code int, body string) {
	s.Helper()
	req, answer := httptest.NewRequestWithContext(s.Context(), http.MethodGet, metricsPath, nil), httptest.NewRecorder()
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	req.Header.Set(clusters.RemoteUserHeader, "scraper") // a client's word, which counts for nothing
	s.front.serveMetrics(&exchange{ResponseWriter: answer, path: metricsPath, who: who, began: time.Now()}, req, clientOf(req, who))
	return answer.Code, answer.Body.String()
}

func userNamed(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
}

func TestWhoMayReadTheRootShardsMetricsMayReadTheFronts(t *testing.T) {
	registerMetrics()
	s := newScraped(t)
	for name, c := range map[string]struct {
		who   user.Info
		token string
		want  int
	}{
		"an administrator":            {userNamed("admin", user.SystemPrivilegedGroup), "", http.StatusOK},
		"who is bound":                {userNamed("scraper"), "", http.StatusOK},
		"who is bound, by a token":    {nil, "Bearer good", http.StatusOK},
		"who is not":                  {userNamed("ann"), "", http.StatusForbidden},
		"a token that nobody knows":   {nil, "Bearer bad", http.StatusUnauthorized},
		"a certificate before tokens": {userNamed("ann"), "Bearer good", http.StatusForbidden},
	} {
		code, body := s.scrape(c.who, c.token)
		if code != c.want || (c.want == http.StatusOK) != strings.Contains(body, "regent_front_requests_inflight") {
			t.Errorf("%s: %d, want %d: %.200s", name, code, c.want, body)
		}
	}
}

func TestMetricsAreReadWhileTheRootShardIsAway(t *testing.T) {
	s := newScraped(t)
	// somebody else's authority may use the name
	scraper, other := userNamed("scraper"), userNamed("scraper", "others")
	if code, body := s.scrape(scraper, ""); code != http.StatusOK {
		t.Fatalf("%d: %s", code, body)
	}
	s.status.Store(http.StatusInternalServerError)
	for who, want := range map[user.Info]int{scraper: http.StatusOK, other: http.StatusServiceUnavailable, userNamed("ann"): http.StatusServiceUnavailable} {
		if code, body := s.scrape(who, ""); code != want {
			t.Errorf("%v: %d, want %d: %s", who, code, want, body)
		}
	}
	s.status.Store(http.StatusForbidden) // it is back, and the binding has gone
	if code, _ := s.scrape(scraper, ""); code != http.StatusForbidden {
		t.Errorf("who was put out gets %d", code)
	}
	s.status.Store(http.StatusInternalServerError)
	if code, _ := s.scrape(scraper, ""); code != http.StatusServiceUnavailable {
		t.Errorf("who was put out gets %d when the root shard is away again", code)
	}
}

func TestAdministratorsReadMetricsWithoutAnyShard(t *testing.T) {
	s := newScraped(t)
	if code, _ := s.scrape(userNamed("admin", user.SystemPrivilegedGroup), ""); code != http.StatusOK || s.questions.Load() != 0 {
		t.Errorf("%d, after %d questions", code, s.questions.Load())
	}
}
