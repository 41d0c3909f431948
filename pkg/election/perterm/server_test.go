package perterm_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election/fence"
)

// shelf is an API server that has ConfigMaps only, and takes any Event.
type shelf struct {
	url string

	mu      sync.Mutex
	events  []metav1.WatchEvent // the history; its length is the resourceVersion
	objects map[string]*corev1.ConfigMap
	grown   chan struct{} // closed at the next change
	watches int           // how many there have been
	tokens  []string      // of the writes of ConfigMaps
	refuse  bool          // refuse writes, as those of a term that is over
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{objects: map[string]*corev1.ConfigMap{}, grown: make(chan struct{})}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	s.url = server.URL
	return s
}

func (s *shelf) config() *rest.Config {
	return &rest.Config{Host: s.url, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, QPS: -1}
}

// mapper spares the server discovery.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return m
}

// ServeHTTP implements http.Handler.
func (s *shelf) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch query := req.URL.Query(); {
	case strings.Contains(req.URL.Path, "/events"): // one of its own, or one more of a series
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, `{}`)
	case query.Get("sendInitialEvents") != "":
		s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	case query.Get("watch") != "":
		s.watch(w, req)
	case req.Method == http.MethodGet:
		s.list(w)
	default:
		s.write(w, req)
	}
}

func (s *shelf) fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason})
}

func (s *shelf) list(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(len(s.events))}}
	for _, obj := range s.objects {
		l.Items = append(l.Items, *obj)
	}
	_ = json.NewEncoder(w).Encode(l)
}

func (s *shelf) watch(w http.ResponseWriter, req *http.Request) {
	var next int
	_, _ = fmt.Sscan(req.URL.Query().Get("resourceVersion"), &next)
	s.mu.Lock()
	s.watches++
	s.mu.Unlock()
	for {
		s.mu.Lock()
		news, grown := slices.Clone(s.events[next:]), s.grown
		next = len(s.events)
		s.mu.Unlock()
		for _, e := range news {
			_ = json.NewEncoder(w).Encode(e)
		}
		w.(http.Flusher).Flush()
		select {
		case <-grown:
		case <-req.Context().Done():
			return
		}
	}
}

func (s *shelf) write(w http.ResponseWriter, req *http.Request) {
	var obj corev1.ConfigMap
	if err := json.NewDecoder(req.Body).Decode(&obj); err != nil {
		s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	s.mu.Lock()
	s.tokens = append(s.tokens, req.Header.Get(fence.Header))
	refuse := s.refuse
	s.mu.Unlock()
	if refuse {
		s.fail(w, http.StatusPreconditionFailed, fence.Reason)
		return
	}
	_ = json.NewEncoder(w).Encode(s.put(&obj))
}

// put creates or changes a ConfigMap.
func (s *shelf) put(obj *corev1.ConfigMap) *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj = obj.DeepCopy()
	obj.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	obj.ResourceVersion = fmt.Sprint(len(s.events) + 1)
	what := "MODIFIED"
	if s.objects[obj.Name] == nil {
		what = "ADDED"
	}
	s.objects[obj.Name] = obj
	e := metav1.WatchEvent{Type: what}
	e.Object.Object = obj
	s.events = append(s.events, e)
	close(s.grown)
	s.grown = make(chan struct{})
	return obj
}

// look returns the data of a ConfigMap.
func (s *shelf) look(name string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj := s.objects[name]; obj != nil {
		return obj.Data
	}
	return nil
}
