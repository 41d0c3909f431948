package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/serviceaccounts"
	"github.com/regent-project/regent/test/etcdtest"
)

// botsMayAll lets service accounts do everything everywhere: what they are refused then, the authenticator refuses.
func botsMayAll(s *Server) {
	stock := s.generic.Authorization.Authorizer
	s.generic.Authorization.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if strings.HasPrefix(a.GetUser().GetName(), "system:serviceaccount:") {
			return authorizer.DecisionAllow, "", nil
		}
		return stock.Authorize(ctx, a)
	})
}

func startWithBots(t *testing.T) *replica {
	t.Helper()
	r := startReplica(t, config(t, t.TempDir()), botsMayAll)
	t.Cleanup(func() {
		if err := r.stop(t); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	r.untilReady(t)
	return r
}

// bot creates the service account bot of a cluster.
func (r *replica) bot(t *testing.T, cluster logicalcluster.Name) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bot"}}
	account, err := r.adminIn(t, cluster).CoreV1().ServiceAccounts(aNamespace).Create(t.Context(), account, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// tokenOf asks for a token of bot.
func (r *replica) tokenOf(t *testing.T, cluster logicalcluster.Name, spec authenticationv1.TokenRequestSpec) *authenticationv1.TokenRequest {
	t.Helper()
	out, err := r.askForToken(t, cluster, spec)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *replica) askForToken(t *testing.T, cluster logicalcluster.Name, spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
	t.Helper()
	return r.adminIn(t, cluster).CoreV1().ServiceAccounts(aNamespace).CreateToken(t.Context(), "bot", &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
}

// warnedOf are the warnings of a request for a token of bot, in system:a, with a lifetime.
func (r *replica) warnedOf(t *testing.T, lifetime time.Duration) (warnings []string) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":%d}}`, int64(lifetime.Seconds()))
	result := r.adminIn(t, "system:a").CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces/"+aNamespace+"/serviceaccounts/bot/token").
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context())
	if err := result.Error(); err != nil {
		t.Fatal(err)
	}
	for _, w := range result.Warnings() {
		warnings = append(warnings, w.Text)
	}
	return warnings
}

// whoami returns who the client is.
func whoami(t *testing.T, client kubernetes.Interface) (authenticationv1.UserInfo, error) {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

func TestATokenMakesItsBearerTheServiceAccountInEveryCluster(t *testing.T) {
	r := startWithBots(t)
	account := r.bot(t, "system:a")
	token := r.tokenOf(t, "system:a", authenticationv1.TokenRequestSpec{}).Status.Token
	for _, cluster := range []logicalcluster.Name{"system:a", "system:b"} {
		who, err := whoami(t, r.kubeOf(t, token, cluster))
		if err != nil {
			t.Fatal(err)
		}
		if who.Username != "system:serviceaccount:default:bot" || who.UID != string(account.UID) ||
			!slices.Equal(who.Groups, []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}) ||
			!slices.Equal(who.Extra["authentication.kcp.io/cluster-name"], []string{"system:a"}) || len(who.Extra["authentication.kubernetes.io/credential-id"]) != 1 {
			t.Errorf("in %s it is %+v", cluster, who)
		}
	}
}

func TestATokenDiesWithItsAccount(t *testing.T) {
	r := startWithBots(t)
	r.bot(t, "system:a")
	r.bot(t, "system:b")
	old := r.kubeOf(t, r.tokenOf(t, "system:a", authenticationv1.TokenRequestSpec{}).Status.Token, "system:a")
	others := r.kubeOf(t, r.tokenOf(t, "system:b", authenticationv1.TokenRequestSpec{}).Status.Token, "system:b")
	if _, err := whoami(t, old); err != nil {
		t.Fatal(err)
	}
	if err := r.adminIn(t, "system:a").CoreV1().ServiceAccounts(aNamespace).Delete(t.Context(), "bot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	untilDead(t, old, "its account was deleted")
	r.bot(t, "system:a")
	fresh := r.kubeOf(t, r.tokenOf(t, "system:a", authenticationv1.TokenRequestSpec{}).Status.Token, "system:a")
	for range 20 { // before and after the informer shows the new account
		if _, err := whoami(t, fresh); err != nil {
			t.Fatalf("the token of a new account: %v", err)
		}
		if who, err := whoami(t, old); !apierrors.IsUnauthorized(err) {
			t.Fatalf("by the token of the account before it is %v, %v", who, err)
		}
	}
	if _, err := whoami(t, others); err != nil {
		t.Errorf("the account of another cluster: %v", err)
	}
}

// untilDead waits until a token is worth nothing.
func untilDead(t *testing.T, client kubernetes.Interface, why string) {
	t.Helper()
	for began := time.Now(); ; {
		_, err := whoami(t, client)
		switch since := time.Since(began); {
		case apierrors.IsUnauthorized(err):
			t.Logf("401 came %v after %s", since, why)
			return
		case err != nil:
			t.Fatal(err)
		case since > 10*time.Second:
			t.Fatalf("the token is still valid 10 s after %s", why)
		}
	}
}

func TestATokenDiesWithTheSecretToWhichItIsBound(t *testing.T) {
	r := startWithBots(t)
	r.bot(t, "system:a")
	secrets := r.adminIn(t, "system:a").CoreV1().Secrets(aNamespace)
	bond, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bond"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asked := r.tokenOf(t, "system:a", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: "bond"}})
	if asked.Spec.BoundObjectRef.UID != bond.UID {
		t.Errorf("bound to the uid %q, want %q", asked.Spec.BoundObjectRef.UID, bond.UID)
	}
	client := r.kubeOf(t, asked.Status.Token, "system:a")
	if _, err := whoami(t, client); err != nil {
		t.Fatal(err)
	}
	if err := secrets.Delete(t.Context(), "bond", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	untilDead(t, client, "its secret was deleted")
}

func TestWhatCanBeAskedOfATokenRequest(t *testing.T) {
	r := startWithBots(t)
	r.bot(t, "system:a")
	if _, err := r.adminIn(t, "system:a").CoreV1().Secrets(aNamespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bond"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound := func(version, kind, name, uid string) authenticationv1.TokenRequestSpec {
		return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid)}}
	}
	for name, c := range map[string]struct {
		spec     authenticationv1.TokenRequestSpec
		lifetime time.Duration
		want     string // a part of the refusal; empty: granted
	}{
		"nothing":                {lifetime: time.Hour},
		"ten minutes":            {spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(600))}, lifetime: 10 * time.Minute},
		"less":                   {spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(599))}, want: "spec.expirationSeconds"},
		"a year":                 {spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(365 * 24 * 3600))}, lifetime: identity.DefaultMaxTokenLifetime},
		"more than upstream":     {spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(1<<32 + 1))}, want: "spec.expirationSeconds"},
		"an empty audience":      {spec: authenticationv1.TokenRequestSpec{Audiences: []string{"a", ""}}, want: "spec.audiences[1]"},
		"an attestation":         {spec: authenticationv1.TokenRequestSpec{Attestations: map[string]authenticationv1.AttestationValue{"a": nil}}, want: "spec.attestations"},
		"a pod":                  {spec: bound("v1", "Pod", "p", ""), want: `supported values: "v1 Secret"`},
		"a secret of no version": {spec: bound("", "Secret", "bond", ""), want: `supported values: "v1 Secret"`},
		"a secret of no name":    {spec: bound("v1", "Secret", "", ""), want: "spec.boundObjectRef.name"},
		"no secret":              {spec: bound("v1", "Secret", "none", ""), want: `secrets "none" not found`},
		"another secret":         {spec: bound("v1", "Secret", "bond", "other"), want: "the uid in the request is other"},
		"a secret":               {spec: bound("v1", "Secret", "bond", ""), lifetime: time.Hour},
	} {
		got, err := r.askForToken(t, "system:a", c.spec)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want a refusal because of %q", name, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if left := time.Until(got.Status.ExpirationTimestamp.Time); left > c.lifetime || left < c.lifetime-time.Minute {
			t.Errorf("%s: it is valid for %v, want %v", name, left, c.lifetime)
		}
		if seconds := *got.Spec.ExpirationSeconds; seconds != int64(c.lifetime.Seconds()) {
			t.Errorf("%s: the answer says %d s", name, seconds)
		}
	}
	if got := r.warnedOf(t, 365*24*time.Hour); len(got) != 1 || !strings.Contains(got[0], "valid for 24h0m0s, the longest lifetime here, and not for the 8760h0m0s") {
		t.Errorf("who asks for a year is warned %q", got)
	}
	if got := r.warnedOf(t, identity.DefaultMaxTokenLifetime); len(got) != 0 {
		t.Errorf("a user who gets what they ask for is warned %q", got)
	}
	if _, err := r.askForToken(t, "system:b", authenticationv1.TokenRequestSpec{}); !apierrors.IsNotFound(err) {
		t.Errorf("a token of an account that another cluster has: %v", err)
	}
}

func TestATokenReviewTellsOfTheTokensOfItsCluster(t *testing.T) {
	r := startWithBots(t)
	r.bot(t, "system:a")
	plain := r.tokenOf(t, "system:a", authenticationv1.TokenRequestSpec{}).Status.Token
	vault := r.tokenOf(t, "system:a", authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}).Status.Token
	here := r.server.identity.Issuer.Name
	for name, c := range map[string]struct {
		cluster   logicalcluster.Name
		token     string
		audiences []string
		want      []string // the audiences; nil: unauthenticated
	}{
		"in its cluster":                    {"system:a", plain, nil, []string{here}},
		"in another cluster":                {"system:b", plain, nil, nil},
		"for the API, by name":              {"system:a", plain, []string{"other", here}, []string{here}},
		"for another audience than its own": {"system:a", plain, []string{"vault"}, nil},
		"for an audience of its own":        {"system:a", vault, []string{"vault", "other"}, []string{"vault"}},
		"for the API, which is not its own": {"system:a", vault, nil, nil},
		"the leader's":                      {"system:a", r.server.identity.InProcess.Leader, nil, nil},
		"the replica's":                     {"system:a", r.server.identity.InProcess.Replica, nil, nil},
		"the leader's, with a space":        {"system:a", r.server.identity.InProcess.Leader + " x", nil, nil},
		"the leader's, behind a space":      {"system:a", " " + r.server.identity.InProcess.Leader, nil, nil},
		"the leader's, with a tab":          {"system:a", r.server.identity.InProcess.Leader + "\tx", nil, nil},
		"nobody's":                          {"system:a", "nobody's", nil, nil},
		"cut":                               {"system:a", plain[:len(plain)-4], nil, nil},
	} {
		review, err := r.adminIn(t, c.cluster).AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: c.token, Audiences: c.audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := review.Status; got.Authenticated != (c.want != nil) || !slices.Equal(got.Audiences, c.want) || got.Authenticated != (got.User.Username == "system:serviceaccount:default:bot") {
			t.Errorf("%s: %+v, want the audiences %q", name, got, c.want)
		}
	}
	empty := &authenticationv1.TokenReview{}
	if _, err := r.adminIn(t, "system:a").AuthenticationV1().TokenReviews().Create(t.Context(), empty, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a review of no token: %v", err)
	}
}

// Each of these is somebody's token, or looks like the shard's own.
func TestTokensOfOthersAreRefusedByTheServer(t *testing.T) {
	r, other := startWithBots(t), startWithBots(t)
	account := r.bot(t, "system:a")
	other.bot(t, "system:a")
	issue := func(i *serviceaccounts.Issuer, lifetime time.Duration, audiences ...string) string {
		token, err := i.Issue(serviceaccounts.Grant{Cluster: "system:a", Account: account, Audiences: audiences, Lifetime: lifetime})
		if err != nil {
			t.Fatal(err)
		}
		return token.Text
	}
	own := r.server.identity.Issuer
	for name, token := range map[string]string{
		"expired":                           issue(own, -time.Second, own.Name),
		"for another audience":              issue(own, time.Hour, "vault"),
		"for nobody":                        issue(own, time.Hour),
		"another issuer's, by the same key": issue(&serviceaccounts.Issuer{Name: "there", Keys: own.Keys}, time.Hour, own.Name),
		"another shard's":                   other.tokenOf(t, "system:a", authenticationv1.TokenRequestSpec{}).Status.Token,
		"this issuer's, by another key":     issue(&serviceaccounts.Issuer{Name: own.Name, Keys: other.server.identity.Issuer.Keys}, time.Hour, own.Name),
	} {
		if who, err := whoami(t, r.kubeOf(t, token, "system:a")); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: it is %v, %v", name, who, err)
		}
	}
	if _, err := whoami(t, r.kubeOf(t, issue(own, time.Hour, own.Name), "system:a")); err != nil {
		t.Errorf("a token that is sound: %v", err)
	}
}

// Replicas of a shard have copies of one pki/, and so accept each other's tokens.
func TestAReplicaAcceptsTheTokensOfOthers(t *testing.T) {
	root := t.TempDir()
	way := etcdtest.Start(t)
	var replicas []*replica
	for range 2 {
		cfg := config(t, root)
		cfg.EmbeddedEtcd, cfg.Etcd = nil, way
		r := startReplica(t, cfg, botsMayAll)
		t.Cleanup(func() {
			if err := r.stop(t); err != nil {
				t.Errorf("Run returned %v", err)
			}
		})
		r.untilReady(t)
		replicas = append(replicas, r)
	}
	for n := range 10 {
		cluster := logicalcluster.Name(fmt.Sprintf("system:c%d", n))
		replicas[0].bot(t, cluster)
		token := replicas[0].tokenOf(t, cluster, authenticationv1.TokenRequestSpec{}).Status.Token
		// at once: its informer may lack the account
		if _, err := whoami(t, replicas[1].kubeOf(t, token, cluster)); err != nil {
			t.Errorf("in %s: %v", cluster, err)
		}
	}
}
