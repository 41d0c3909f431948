package fence

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// shard answers each write of a Lease with what the test has put there, and notes what it was sent.
type shard struct {
	code   int
	answer []byte
	sent   []*http.Request
}

func (s *shard) RoundTrip(req *http.Request) (*http.Response, error) {
	s.sent = append(s.sent, req)
	return &http.Response{StatusCode: s.code, Body: io.NopCloser(bytes.NewReader(s.answer))}, nil
}

const (
	theLeases = "/clusters/root:team/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	theLease  = theLeases + "/regent-controllers"
	aWrite    = "/clusters/root:team/api/v1/namespaces/default/configmaps/x"
)

func heldBy(holder string, epoch int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: sound.Namespace, Name: sound.Name, UID: sound.UID, Annotations: map[string]string{"kcp.io/cluster": sound.Cluster.String()},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder), LeaseTransitions: ptr.To(epoch)},
	}
}

func encoded(t *testing.T, as string, lease *coordinationv1.Lease) []byte {
	t.Helper()
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		if info.MediaType == as {
			var b bytes.Buffer
			if err := scheme.Codecs.EncoderForVersion(info.Serializer, coordinationv1.SchemeGroupVersion).Encode(lease, &b); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
	}
	t.Fatalf("no encoding %s", as)
	return nil
}

// through sends a request by one of the clients of a configuration, and returns the token with which it arrived.
func through(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper, s *shard, method, path string) (Token, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://127.0.0.1"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	before := len(s.sent)
	resp, err := wrap(s).RoundTrip(req)
	if err != nil {
		if len(s.sent) != before {
			t.Errorf("%s %s fails, and was sent", method, path)
		}
		return Token{}, err
	}
	if body, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(body, s.answer) {
		t.Errorf("the client gets %q, %v", body, err)
	}
	_ = resp.Body.Close()
	token, err := Parse(s.sent[before].Header.Values(Header))
	if err != nil {
		t.Fatal(err)
	}
	return token, nil
}

func TestAnElectedProcessWritesInTheTermThatItHasAcquired(t *testing.T) {
	for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		for method, path := range map[string]string{http.MethodPost: theLeases, http.MethodPut: theLease, http.MethodPatch: theLease} {
			wrap, s := Elected(sound.Namespace, sound.Name), &shard{code: http.StatusOK}
			if _, err := through(t, wrap, s, http.MethodPatch, aWrite); !errors.Is(err, ErrNoTerm) {
				t.Errorf("before: %v", err)
			}
			if token, err := through(t, wrap, s, http.MethodGet, aWrite); err != nil || !token.IsZero() {
				t.Errorf("a read before: %v, %v", token, err)
			}
			s.answer = encoded(t, media, heldBy(sound.Holder, int32(sound.Epoch)))
			if token, err := through(t, wrap, s, method, path); err != nil || !token.IsZero() {
				t.Errorf("%s, by %s: the write that acquires: %v, %v", media, method, token, err)
			}
			// The Lease is lost and taken back: that is another term, and the work is still of the first
			// one.
			s.answer = encoded(t, media, heldBy(sound.Holder, int32(sound.Epoch)+2))
			for _, path := range []string{theLease, aWrite} {
				if token, err := through(t, wrap, s, http.MethodPut, path); err != nil || token != sound {
					t.Errorf("%s, by %s: %s afterwards: %v, %v", media, method, path, token, err)
				}
			}
		}
	}
}

func TestAnElectedProcessOfAServerWithoutClustersIsFencedIfItSaysSo(t *testing.T) {
	lease, want := heldBy(sound.Holder, int32(sound.Epoch)), sound
	lease.Annotations, want.Cluster = nil, ""
	for _, c := range []struct {
		opts []Option
		says bool
	}{{[]Option{WithoutClusters()}, true}, {nil, false}} {
		wrap, s := Elected(sound.Namespace, sound.Name, c.opts...), &shard{code: http.StatusOK, answer: encoded(t, "application/json", lease)}
		if _, err := through(t, wrap, s, http.MethodPut, theLease); err != nil {
			t.Fatal(err)
		}
		token, err := through(t, wrap, s, http.MethodPut, aWrite)
		if c.says && (err != nil || token != want) || !c.says && (err == nil || !strings.Contains(err.Error(), "WithoutClusters")) {
			t.Errorf("%v: %v, %v", c.says, token, err)
		}
	}
}

func TestWhatAcquiresNothingBeginsNoTerm(t *testing.T) {
	other := heldBy(sound.Holder, 7)
	other.Name = "other"
	for name, c := range map[string]struct {
		method, path string
		code         int
		answer       *coordinationv1.Lease
		sent         bool
	}{
		"refused":                {http.MethodPut, theLease, http.StatusConflict, heldBy(sound.Holder, 7), true},
		"released":               {http.MethodPut, theLease, http.StatusOK, heldBy("", 7), true},
		"a read":                 {http.MethodGet, theLease, http.StatusOK, heldBy("another", 7), true},
		"another Lease":          {http.MethodPost, theLeases, http.StatusCreated, other, true},
		"a change of another":    {http.MethodPut, theLeases + "/other", http.StatusOK, other, false},
		"deletion":               {http.MethodDelete, theLease, http.StatusOK, heldBy("another", 7), false},
		"of another namespace":   {http.MethodPut, strings.Replace(theLease, "kube-system", "default", 1), http.StatusOK, heldBy("another", 7), false},
		"of another API's Lease": {http.MethodPut, strings.Replace(theLease, "coordination", "other", 1), http.StatusOK, heldBy("another", 7), false},
	} {
		wrap, s := Elected(sound.Namespace, sound.Name), &shard{code: c.code, answer: encoded(t, "application/json", c.answer)}
		if _, err := through(t, wrap, s, c.method, c.path); (err == nil) != c.sent || err != nil && !errors.Is(err, ErrNoTerm) {
			t.Errorf("%s: %v", name, err)
		}
		if token, err := through(t, wrap, s, http.MethodPut, aWrite); !errors.Is(err, ErrNoTerm) {
			t.Errorf("%s: then a write is sent with %v, %v", name, token, err)
		}
	}
}

// Else a process that believes to be fenced would not be.
func TestWithoutATokenNothingIsWritten(t *testing.T) {
	elsewhere := heldBy(sound.Holder, 7)
	elsewhere.Annotations = nil
	status, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer []byte
		says   string
	}{
		"no logical cluster": {encoded(t, "application/json", elsewhere), "kcp.io/cluster"},
		"no Lease":           {status, "does not say in which term"},
		"no object":          {[]byte("\xd9\xd9\xf7\xa0"), "does not say in which term"},
	} {
		wrap, s := Elected(sound.Namespace, sound.Name), &shard{code: http.StatusOK, answer: c.answer}
		if _, err := through(t, wrap, s, http.MethodPost, theLeases); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if token, err := through(t, wrap, s, http.MethodPut, aWrite); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: then a write is sent with %v, %v", name, token, err)
		}
	}
}
