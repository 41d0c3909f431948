package installation

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
)

// gate makes a front a member, and starts what answers in its place. It returns the front's URL.
func (f *fakes) gate(name string, status int) string {
	f.Helper()
	membership, err := f.admin.AddFront(f.Context(), f.bundle, name)
	must(f.T, err)
	authority, err := membership.Authority()
	must(f.T, err)
	certPEM, keyPEM, err := authority.Serve(nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	must(f.T, err)
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	must(f.T, err)
	server := httptest.NewUnstartedServer(answering(status))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	f.Cleanup(server.Close)
	return server.URL
}

func answering(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// probed has a shard answer what only administrators may ask for, and nothing else.
func (f *fakes) probed(name string, status int) {
	shard := f.shards[name]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.probe = answering(status)
}

// change changes the root shard's object of a member.
func (f *fakes) change(name string, change func(*corev1alpha1.Shard)) {
	f.Helper()
	must(f.T, f.admin.change(f.Context(), name, func(s *corev1alpha1.Shard) error {
		change(s)
		return nil
	}))
}

// A step of a roll names everybody who has not the one before, and nobody else.
func TestEveryProcessOfAnInstallationIsAskedBeforeAStep(t *testing.T) {
	stranger, err := pki.Ensure(t.TempDir())
	must(t, err)
	for name, tc := range map[string]struct {
		change func(f *fakes, q *Question, fronts []string) []string // returns the fronts to ask
		says   []string                                              // for each fault what is said of it
	}{
		"all is well":           {func(_ *fakes, _ *Question, fronts []string) []string { return fronts }, nil},
		"a front was not asked": {func(_ *fakes, _ *Question, _ []string) []string { return nil }, []string{"front gate was not asked: give --front="}},
		"a shard refuses the administrator": {func(f *fakes, _ *Question, fronts []string) []string {
			f.probed("eu1", http.StatusUnauthorized)
			return fronts
		}, []string{"shard eu1 at https://127.0.0.1:"}},
		"nobody shows the new authority": {func(_ *fakes, q *Question, fronts []string) []string {
			q.Signs = stranger.CA()
			return fronts
		}, []string{"shard eu1 at https://", "shard root at https://", "front gate at https://"}},
		"a shard does not answer": {func(f *fakes, _ *Question, fronts []string) []string {
			f.change("eu1", func(s *corev1alpha1.Shard) { setReplicas(s, []string{f.shards["eu1"].url, "https://127.0.0.1:1"}) })
			return fronts
		}, []string{"shard eu1 at https://127.0.0.1:1 cannot be asked"}},
		"a shard is where another one is": {func(f *fakes, _ *Question, fronts []string) []string {
			f.change("eu1", func(s *corev1alpha1.Shard) { setReplicas(s, []string{f.shards["root"].url}) })
			return fronts
		}, []string{"shard root answers: correct it with regent shard set eu1"}},
		"a shard is where a front is said to be": {func(f *fakes, _ *Question, _ []string) []string {
			return []string{f.shards["eu1"].url}
		}, []string{"shard eu1 answers, which is no front", "front gate was not asked"}},
		"a membership was replaced": {func(f *fakes, _ *Question, fronts []string) []string {
			f.change("eu1", func(s *corev1alpha1.Shard) { s.Annotations[clusters.AuthorityAnnotation] = "another" })
			return fronts
		}, []string{"it has a membership that was replaced"}},
		"a membership is registered by an earlier version": {func(f *fakes, _ *Question, fronts []string) []string {
			f.change("eu1", func(s *corev1alpha1.Shard) {
				s.Annotations[clusters.AuthorityAnnotation] = pki.Fingerprint(f.authorities["eu1"])
			})
			return fronts
		}, []string{"regent shard add --renew"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes(t, "eu1")
			f.probed("root", http.StatusOK)
			f.probed("eu1", http.StatusOK)
			q := Question{CA: f.bundle.CAPEM, Cert: f.bundle.AdminCertPEM, Key: f.bundle.AdminKeyPEM, Lacks: "lacks something"}
			fronts := tc.change(f, &q, []string{f.gate("gate", http.StatusOK)})
			err := f.admin.Ask(t.Context(), q, fronts)
			var faults []error
			if all, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the faults one by one
				faults = all.Unwrap()
			}
			if len(faults) != len(tc.says) {
				t.Fatalf("%d faults, want %d: %v", len(faults), len(tc.says), err)
			}
			for _, want := range tc.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			if name == "a shard refuses the administrator" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "lacks something: give it its membership")) {
				t.Errorf("%v", err)
			}
		})
	}
}

// In a roll the kubeconfig and the keys may be of different steps.
func TestKeysOfAnotherStepOfARollAreThoseOfTheInstallation(t *testing.T) {
	f := newFakes(t)
	must(t, pki.Roll(f.directory, "", pki.Begin))
	begun, err := pki.Read(f.directory)
	must(t, err)
	membership, err := f.admin.Add(t.Context(), begun, Addition{Name: "eu1", Replicas: []string{"https://127.0.0.1:1"}})
	must(t, err)
	if certs, err := cert.ParseCertsPEM([]byte(membership.CertificateAuthority)); err != nil || len(certs) != 2 {
		t.Errorf("the new member trusts %d authorities (%v)", len(certs), err)
	}
	if got := f.shards["root"].shard(t, "root", "eu1"); !metav1.HasAnnotation(got.ObjectMeta, clusters.AuthorityAnnotation) {
		t.Error("it is no member")
	}
}
