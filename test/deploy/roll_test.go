package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// operator has a directory with the keys, as docs/INSTALL.md says, and their kubeconfig.
type operator struct {
	of   *onePod
	keys string
}

// takesKeys makes the directory of what the Secret has, and what is not in it.
func takesKeys(t *testing.T, i *onePod) *operator {
	t.Helper()
	o := &operator{i, t.TempDir()}
	if err := os.MkdirAll(filepath.Join(o.keys, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range i.keys {
		if err := os.WriteFile(filepath.Join(o.keys, "pki", name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.types(t, "init", fmt.Sprintf("--shard-base-url=https://127.0.0.1:%d", i.port))
	return o
}

// types runs a command of `regent pki`.
func (o *operator) types(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"pki", "--root-directory=" + o.keys}, args...)
	if said, err := exec.CommandContext(t.Context(), static(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("regent %q: %v\n%s", args, err, said)
	}
}

// putsBack puts files of the directory into the Secret, as `kubectl create secret` does: all, or some.
func (o *operator) putsBack(t *testing.T, some ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(o.keys, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if len(some) > 0 && !slices.Contains(some, e.Name()) {
			continue
		}
		if o.of.keys[e.Name()], err = os.ReadFile(filepath.Join(o.keys, "pki", e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// client returns a client of root: the administrator's, or of a token.
func (o *operator) client(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(o.keys, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = token
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newToken returns a token of a new service account.
func (o *operator) newToken(t *testing.T) string {
	t.Helper()
	accounts := o.client(t, "").CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := accounts.CreateToken(t.Context(), "bot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// whose asks the server whose a token is.
func (o *operator) whose(t *testing.T, token string) (string, error) {
	t.Helper()
	review, err := o.client(t, token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// After a roll, pods begin with an authority from which nobody can derive the key that has signed the tokens.
func TestTokensOutliveARollOfTheAuthorityAndARestart(t *testing.T) {
	for name, c := range map[string]struct{ lacks, putsBack []string }{
		"with all keys of the directory": {},
		// The chart has made a key for tokens, which stays.
		"with what the roll has changed": {putsBack: []string{"ca.crt", "ca.key", "roll.json"}},
		// Version 1 of the chart has made none, so that pods have derived one. The operator's directory gets
		// the same.
		"with a key that pods have derived": {lacks: []string{"serviceaccount.key"}},
	} {
		t.Run(name, func(t *testing.T) {
			shard := install(t)
			for _, name := range c.lacks {
				delete(shard.keys, name)
			}
			operator := takesKeys(t, shard)
			stop := shard.start(t)
			token := operator.newToken(t)
			stop()
			for _, step := range []string{"begin", "switch", "finish"} {
				operator.types(t, "roll", step, "--offline")
			}
			operator.putsBack(t, c.putsBack...)
			stop = shard.start(t)
			defer stop()
			if user, err := operator.whose(t, token); err != nil || user != "system:serviceaccount:default:bot" {
				t.Errorf("the token is one of %q: %v", user, err)
			}
		})
	}
}
