package serviceaccounts

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
)

// world has what a replica's cache shows, and what is stored.
type world struct {
	cached, stored map[string]*metav1.ObjectMeta
	fault          error // of storage
	reads          int
}

func newWorld() *world {
	return &world{cached: map[string]*metav1.ObjectMeta{}, stored: map[string]*metav1.ObjectMeta{}}
}

func at(resource schema.GroupVersionResource, key clusters.Key) string {
	return resource.Resource + " " + key.String()
}

func (w *world) Cached(resource schema.GroupVersionResource, key clusters.Key) (metav1.Object, bool) {
	obj, ok := w.cached[at(resource, key)]
	return obj, ok
}

func (w *world) Live(_ context.Context, resource schema.GroupVersionResource, key clusters.Key) (metav1.Object, error) {
	w.reads++
	if w.fault != nil {
		return nil, w.fault
	}
	if obj, ok := w.stored[at(resource, key)]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(resource.GroupResource(), key.Name)
}

const (
	theAccount = "serviceaccounts c7|n/bot"
	theSecret  = "secrets c7|n/bond"
)

func object(uid types.UID) *metav1.ObjectMeta { return &metav1.ObjectMeta{UID: uid} }

func deleting(uid types.UID) *metav1.ObjectMeta {
	now := metav1.Now()
	return &metav1.ObjectMeta{UID: uid, DeletionTimestamp: &now}
}

func newECDSA(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newIssuer(t testing.TB, signing crypto.Signer, further ...crypto.PublicKey) *Issuer {
	t.Helper()
	keys, err := NewKeys(signing, further...)
	if err != nil {
		t.Fatal(err)
	}
	return &Issuer{Name: "here", Audiences: []string{"here"}, Keys: keys}
}

func grant() Grant {
	return Grant{
		Cluster: "c7", Account: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "bot", UID: "u1"}},
		Audiences: []string{"here"}, Lifetime: time.Hour,
	}
}

func issue(t testing.TB, i *Issuer, change func(*Grant)) string {
	t.Helper()
	g := grant()
	if change != nil {
		change(&g)
	}
	token, err := i.Issue(g)
	if err != nil {
		t.Fatal(err)
	}
	return token.Text
}

func bindTo(g *Grant) {
	g.Secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "bond", UID: "s1"}}
}

func TestATokenNamesItsServiceAccountAndItsCluster(t *testing.T) {
	w := newWorld()
	w.cached[theAccount] = object("u1")
	issuer := newIssuer(t, newECDSA(t, elliptic.P256()))
	token, err := issuer.Issue(grant())
	if err != nil {
		t.Fatal(err)
	}
	resp, ok, err := NewAuthenticator(issuer, w).AuthenticateToken(t.Context(), token.Text)
	if err != nil || !ok {
		t.Fatalf("refused: %v", err)
	}
	want := &user.DefaultInfo{
		Name: "system:serviceaccount:n:bot", UID: "u1", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:n"},
		Extra: map[string][]string{"authentication.kcp.io/cluster-name": {"c7"}, "authentication.kubernetes.io/credential-id": {"JTI=" + token.ID}},
	}
	if d := cmp.Diff(want, resp.User) + cmp.Diff(authenticator.Audiences{"here"}, resp.Audiences); d != "" {
		t.Error(d)
	}
	if w.reads > 0 {
		t.Errorf("%d reads from storage of what the cache shows", w.reads)
	}
}

// What the cache shows may be old, and what it lacks may be new.
func TestATokenLivesAsLongAsItsObjects(t *testing.T) {
	for name, c := range map[string]struct {
		world func(*world)
		bound bool
		want  string // a part of the refusal; empty: let in
		reads int
	}{
		"cached":                          {world: func(w *world) { w.cached[theAccount] = object("u1") }},
		"cached, being deleted":           {world: func(w *world) { w.cached[theAccount] = deleting("u1") }, want: "deleted"},
		"not cached yet":                  {world: func(w *world) { w.stored[theAccount] = object("u1") }, reads: 1},
		"not cached yet, being deleted":   {world: func(w *world) { w.stored[theAccount] = deleting("u1") }, want: "deleted", reads: 1},
		"gone":                            {world: func(*world) {}, want: "deleted", reads: 1},
		"the cache shows the one before":  {world: func(w *world) { w.cached[theAccount], w.stored[theAccount] = object("u0"), object("u1") }, reads: 1},
		"replaced by another one":         {world: func(w *world) { w.cached[theAccount], w.stored[theAccount] = object("u2"), object("u2") }, want: "replaced", reads: 1},
		"replaced, which the cache lacks": {world: func(w *world) { w.stored[theAccount] = object("u2") }, want: "replaced", reads: 1},
		"storage does not answer":         {world: func(w *world) { w.fault = errors.New("no answer") }, want: "no answer", reads: 1},
		"cached, storage does not answer": {world: func(w *world) { w.cached[theAccount], w.fault = object("u1"), errors.New("no answer") }},
		"with its secret":                 {world: func(w *world) { w.cached[theAccount], w.cached[theSecret] = object("u1"), object("s1") }, bound: true},
		"with a new secret":               {world: func(w *world) { w.cached[theAccount], w.stored[theSecret] = object("u1"), object("s1") }, bound: true, reads: 1},
		"its secret has gone":             {world: func(w *world) { w.cached[theAccount] = object("u1") }, bound: true, want: "secret c7|n/bond", reads: 1},
		"its secret was replaced":         {world: func(w *world) { w.cached[theAccount], w.stored[theSecret] = object("u1"), object("s2") }, bound: true, want: "replaced", reads: 1},
		"in another cluster only": {world: func(w *world) {
			w.cached["serviceaccounts c8|n/bot"], w.stored["serviceaccounts c8|n/bot"] = object("u1"), object("u1")
		}, want: "deleted", reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			c.world(w)
			issuer := newIssuer(t, newECDSA(t, elliptic.P256()))
			token := issue(t, issuer, func(g *Grant) {
				if c.bound {
					bindTo(g)
				}
			})
			expect(t, NewAuthenticator(issuer, w), t.Context(), token, c.want)
			if w.reads != c.reads {
				t.Errorf("%d reads from storage, want %d", w.reads, c.reads)
			}
		})
	}
}

// expect checks that a token is refused because of want, or let in if that is empty.
func expect(t *testing.T, a *Authenticator, ctx context.Context, token, want string) {
	t.Helper()
	resp, ok, err := a.AuthenticateToken(ctx, token)
	switch {
	case want == "" && (err != nil || !ok):
		t.Errorf("refused: %v", err)
	case want != "" && (ok || err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%v, %t, %v: want a refusal because of %q", resp, ok, err, want)
	}
}

// Nothing limits how often clients come with the token of an account that has gone.
func TestADeadAccountIsNotReadAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		issuer := newIssuer(t, newECDSA(t, elliptic.P256()))
		a, token := NewAuthenticator(issuer, w), issue(t, issuer, nil)
		for range 10 {
			expect(t, a, t.Context(), token, "deleted")
		}
		if w.reads != 1 {
			t.Errorf("%d reads", w.reads)
		}
		// A backup was restored, and the watch tells of it.
		w.cached[theAccount] = object("u1")
		expect(t, a, t.Context(), token, "")
		delete(w.cached, theAccount)
		w.stored[theAccount] = object("u1")
		time.Sleep(deadFor + time.Second)
		expect(t, a, t.Context(), token, "")
	})
}

func TestATokenIsForItsTimeAndItsAudiences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.cached[theAccount] = object("u1")
		issuer := newIssuer(t, newECDSA(t, elliptic.P256()))
		a := NewAuthenticator(issuer, w)
		token := issue(t, issuer, nil)
		time.Sleep(time.Hour - time.Second)
		expect(t, a, t.Context(), token, "")
		time.Sleep(time.Second)
		expect(t, a, t.Context(), token, "expired")

		for _, c := range []struct {
			of, asked []string
			want      string
		}{
			{[]string{"here"}, nil, ""},
			{[]string{"vault"}, nil, `for ["vault"]`},
			{[]string{"vault"}, []string{"vault"}, ""},
			{[]string{"vault", "here"}, nil, ""},
			{[]string{"here"}, []string{"vault"}, `not for ["vault"]`},
			{nil, nil, "for []"},
		} {
			ctx := t.Context()
			if c.asked != nil {
				ctx = authenticator.WithAudiences(ctx, c.asked)
			}
			expect(t, a, ctx, issue(t, issuer, func(g *Grant) { g.Audiences = c.of }), c.want)
		}
	})
}

// Another replica's clock may be ahead, but not by much.
func TestATokenOfAReplicaWhoseClockIsAheadIsValid(t *testing.T) {
	w := newWorld()
	w.cached[theAccount] = object("u1")
	issuer := newIssuer(t, newECDSA(t, elliptic.P256()))
	var ahead, tooFar string
	synctest.Test(t, func(t *testing.T) { // its clock begins in the past
		time.Sleep(time.Until(time.Date(2001, 1, 1, 0, 1, 0, 0, time.UTC)))
		ahead = issue(t, issuer, nil)
		time.Sleep(time.Minute)
		tooFar = issue(t, issuer, nil)
	})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2001, 1, 1, 0, 0, 30, 0, time.UTC)))
		a := NewAuthenticator(issuer, w)
		expect(t, a, t.Context(), ahead, "")
		expect(t, a, t.Context(), tooFar, "only later")
	})
}

func TestForgedTokensAreRefused(t *testing.T) {
	w := newWorld()
	w.cached[theAccount] = object("u1")
	key, other := newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P256())
	issuer := newIssuer(t, key)
	a := NewAuthenticator(issuer, w)
	genuine := issue(t, issuer, nil)
	expect(t, a, t.Context(), genuine, "")
	parts := strings.Split(genuine, ".")
	id, err := idOf(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	for name, c := range map[string]struct{ token, want string }{
		"no signature":                   {parts[0] + "." + parts[1] + ".", "signature"},
		"alg none":                       {encoded(t, map[string]string{"alg": "none", "kid": id}) + "." + parts[1] + ".", "signed by"},
		"another key":                    {issue(t, newIssuer(t, other), nil), "does not have"},
		"another key by the same name":   {signed(t, jose.ES256, other, id, parts[1]), "signature is wrong"},
		"HS256 with the public key":      {signed(t, jose.HS256, public, id, parts[1]), "its key is for ES256"},
		"HS256 with the public key, der": {signed(t, jose.HS256, der, id, parts[1]), "its key is for ES256"},
		"another payload":                {parts[0] + "." + changed(t, parts[1]) + "." + parts[2], "signature is wrong"},
		"no key's name":                  {signed(t, jose.ES256, key, "", parts[1]), "does not have"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, a, t.Context(), c.token, c.want) })
	}
	for name, token := range map[string]string{
		"another issuer's": issue(t, &Issuer{Name: "there", Keys: issuer.Keys}, nil),
		"no JWT":           "t0ken", "empty": "", "dots": "..", "two parts": parts[0] + "." + parts[1], "JSON": `{"payload":"a.b.c"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if resp, ok, err := a.AuthenticateToken(t.Context(), token); ok || err != nil {
				t.Errorf("%v, %t, %v: want that it is not this issuer's", resp, ok, err)
			}
		})
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// changed makes a payload one of another cluster.
func changed(t *testing.T, payload string) string {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || !strings.Contains(string(text), `"c7"`) {
		t.Fatalf("%s: %v", text, err)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(text), `"c7"`, `"c8"`, 1)))
}

// signed signs a payload with any key.
func signed(t *testing.T, algorithm jose.SignatureAlgorithm, key any, id, payload string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	out, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := out.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// The keys may have signed other things: they may be another system's, too.
func TestWhatTheKeysHaveSignedElsewhereIsNoToken(t *testing.T) {
	w := newWorld()
	w.cached[theAccount] = object("u1")
	issuer := newIssuer(t, newECDSA(t, elliptic.P256()))
	a := NewAuthenticator(issuer, w)
	for name, change := range map[string]func(*claims){
		"no cluster":          func(c *claims) { c.Private.ClusterName = "" },
		"all clusters":        func(c *claims) { c.Private.ClusterName = "*" },
		"a path":              func(c *claims) { c.Private.ClusterName = "root:a" },
		"no end":              func(c *claims) { c.Expiry = nil },
		"another subject":     func(c *claims) { c.Subject = "system:serviceaccount:n:other" },
		"no uid":              func(c *claims) { c.Private.Account.UID = "" },
		"no namespace":        func(c *claims) { c.Private.Namespace, c.Subject = "", "system:serviceaccount::bot" },
		"a path for a name":   func(c *claims) { c.Private.Account.Name, c.Subject = "../x", "system:serviceaccount:n:../x" },
		"a secret of no uid":  func(c *claims) { c.Private.Secret = &reference{Name: "bond"} },
		"a secret of no name": func(c *claims) { c.Private.Secret = &reference{UID: "s1"} },
	} {
		t.Run(name, func(t *testing.T) {
			c := claims{
				Claims:  jwt.Claims{Issuer: "here", Subject: "system:serviceaccount:n:bot", Audience: []string{"here"}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))},
				Private: private{ClusterName: "c7", Namespace: "n", Account: reference{"bot", "u1"}},
			}
			change(&c)
			token, err := jwt.Signed(issuer.Keys.signer).Claims(c).CompactSerialize()
			if err != nil {
				t.Fatal(err)
			}
			expect(t, a, t.Context(), token, "the token")
		})
	}
}

func TestKeysMayBeChangedWhileTheirTokensLive(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	w.cached[theAccount] = object("u1")
	keys := map[string]crypto.Signer{
		"P-256": newECDSA(t, elliptic.P256()), "P-384": newECDSA(t, elliptic.P384()), "P-521": newECDSA(t, elliptic.P521()), "RSA": rsaKey,
	}
	for before, old := range keys {
		token := issue(t, newIssuer(t, old), nil)
		for after, new := range keys {
			want := ""
			expect(t, NewAuthenticator(newIssuer(t, new, old.Public()), w), t.Context(), token, want)
			if before != after {
				want = "--service-account-key-file"
			}
			expect(t, NewAuthenticator(newIssuer(t, new), w), t.Context(), token, want)
		}
	}
}

func TestWeakKeysAreRefused(t *testing.T) {
	good := newECDSA(t, elliptic.P256())
	for name, key := range map[string]crypto.PublicKey{
		"RSA of 1024 bits": &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537}, "P-224": newECDSA(t, elliptic.P224()).Public(), "bytes": []byte("secret"),
	} {
		if _, err := NewKeys(good, key); err == nil || !strings.Contains(err.Error(), "a key of service accounts' tokens") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var _ Objects = (*world)(nil)
