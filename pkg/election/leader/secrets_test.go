package leader_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/regent-project/regent/pkg/election/leader"
)

// secrets serves the Secrets of namespace default.
type secrets struct {
	mu     sync.Mutex
	stored map[string][]byte
	asked  []string // methods of the requests so far
	fault  error
	gather *sync.WaitGroup // requests that create wait for it
}

// together makes the first n requests that create a Secret wait for each other.
func (s *secrets) together(n int) {
	s.gather = &sync.WaitGroup{}
	s.gather.Add(n)
}

// fail makes all requests fail; nil: no more.
func (s *secrets) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

// count returns how many requests of a method there were; empty: of any.
func (s *secrets) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.asked {
		if method == "" || m == method {
			n++
		}
	}
	return n
}

func (s *secrets) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, req.Method)
	s.mu.Unlock()
	if req.Method == http.MethodPost && s.gather != nil {
		s.gather.Done()
		s.gather.Wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var object runtime.Object
	err := s.fault
	if err == nil {
		object, err = s.do(req)
	}
	code := http.StatusOK
	if err != nil {
		status := err.(apierrors.APIStatus).Status()
		object, code = &status, int(status.Code)
	}
	body, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion, metav1.Unversioned), object)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

func (s *secrets) do(req *http.Request) (runtime.Object, error) {
	resource := corev1.Resource("secrets")
	if req.Method == http.MethodGet {
		name := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
		value, some := s.stored[name]
		if !some {
			return nil, apierrors.NewNotFound(resource, name)
		}
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"probe-secret": value}}, nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	secret := &corev1.Secret{}
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, secret); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if _, some := s.stored[secret.Name]; some {
		return nil, apierrors.NewAlreadyExists(resource, secret.Name)
	}
	s.stored[secret.Name] = secret.Data["probe-secret"]
	return secret, nil
}

// Until the secret can be read a replica does not campaign, because nobody could see it; then it does.
func TestAReplicaWaitsForTheSecret(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "secret")
	for name, test := range map[string]struct {
		change func(*leader.Config)
		before func(*server)
		after  func(*server)
	}{
		"which it may not read": {
			change: func(*leader.Config) {},
			before: func(s *server) {
				s.secrets.fail(apierrors.NewForbidden(corev1.Resource("secrets"), "example-probe", nil))
			},
			after: func(s *server) { s.secrets.fail(nil) },
		},
		"which has too little in it": {
			change: func(*leader.Config) {},
			before: func(s *server) { s.secrets.stored["example-probe"] = []byte("short") },
			after: func(s *server) {
				s.secrets.mu.Lock()
				defer s.secrets.mu.Unlock()
				delete(s.secrets.stored, "example-probe")
			},
		},
		"a file that is not there yet": {
			change: func(cfg *leader.Config) { cfg.SecretName, cfg.SecretFile = "", file },
			before: func(*server) {},
			after:  func(*server) { _ = os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			test.before(s)
			var c terms
			l := s.newLeader(t, test.change)
			if err := l.Start(t.Context(), c.lead); err != nil {
				t.Fatal(err)
			}
			<-time.After(300 * time.Millisecond)
			if s.store.Lease() != nil {
				t.Error("it campaigned without the secret")
			}
			test.after(s)
			eventually(t, "it leads", c.leads)
			if err := l.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
