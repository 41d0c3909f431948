package harness

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Ordinary is the user whom scenarios act as: a client certificate without groups. In root it may do what a
// ClusterRoleBinding says that the administrator has made. In workspaces it is cluster-admin, because it has created
// them.
//
// What is not in a cluster of workspaces is the administrator's: the Lease and its Events in system:admin, reads over
// all clusters, metrics, profiles, and the commands regent shard, front and pki. Beyond that these act as the
// administrator, by AdminConfig and AdminKubectl:
//
//   - credentials_test.go: it is about who the administrator is
//   - roll_test.go, rollall_test.go: clients follow the administrator's certificate from one authority to the next
//     (AdminConfig, ReadKeysAgain)
//   - rotation_test.go: an administrator writes all objects of all clusters anew, in root, too
//   - attack_test.go: lets its tenants, who are users of their own, into root
//   - quota_test.go: limits are the administrator's to set; who fills the cluster is the ordinary user
//   - kubectlshards_test.go: kubectl with the administrator's kubeconfig, which leads to the front
//   - bench_fencing_test.go, and the requests that bench_installation_test.go measures: their figures are compared with
//     earlier ones
const Ordinary = "ordinary"

// ofUsers reports whether users can be let into a cluster.
func ofUsers(cluster string) bool {
	return cluster != "" && cluster != "*" && !strings.HasPrefix(cluster, "system:")
}

// credentials are the ordinary user's, in a root directory beside the administrator's.
type credentials struct{ root string }

func (c credentials) cert() string       { return filepath.Join(c.root, "user.crt") }
func (c credentials) key() string        { return filepath.Join(c.root, "user.key") }
func (c credentials) kubeconfig() string { return filepath.Join(c.root, "user.kubeconfig") }

// making is held while files are made: several clients may ask at once.
var making sync.Mutex

// credentialsIn returns the ordinary user's credentials. The first call makes them, signed by the authority in pki/.
func credentialsIn(t testing.TB, root string) credentials {
	t.Helper()
	making.Lock()
	defer making.Unlock()
	c := credentials{root}
	if _, err := os.Stat(c.kubeconfig()); err == nil {
		return c
	}
	pki := filepath.Join(root, "pki")
	authority, err := tls.LoadX509KeyPair(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	leaf, key := certificate(Ordinary), newKey(t)
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	writePEM(t, c.cert(), "CERTIFICATE", sign(t, leaf, authority.Leaf, key, authority.PrivateKey.(*ecdsa.PrivateKey)))
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, c.key(), "EC PRIVATE KEY", private)
	config, err := clientcmd.LoadFromFile(filepath.Join(root, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range config.AuthInfos {
		who.ClientCertificate, who.ClientCertificateData, who.ClientKey, who.ClientKeyData = c.cert(), nil, c.key(), nil
	}
	if err := clientcmd.WriteToFile(*config, c.kubeconfig()); err != nil {
		t.Fatal(err)
	}
	return c
}

// config returns a client's configuration.
func (c credentials) config(url, cluster string) *rest.Config {
	return &rest.Config{Host: url + "/clusters/" + cluster, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(c.root, "pki", "ca.crt"), CertFile: c.cert(), KeyFile: c.key(),
	}}
}

// inRoot is what the ordinary user may do in root, beside the built-in role edit.
var inRoot = []rbacv1.PolicyRule{
	{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
	{Verbs: []string{"*"}, APIGroups: []string{Workspaces.Group}, Resources: []string{"workspaces"}},
	{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"namespaces"}},
}

// letIn has the administrator let the ordinary user into root, once for the shard. It waits until the shard has root.
func (r *Replica) letIn() {
	r.t.Helper()
	if r.shard.admin != "" {
		return // root is on another shard
	}
	r.shard.letIn.Do(func() {
		client, err := kubernetes.NewForConfig(r.AdminConfig("root"))
		if err != nil {
			r.t.Fatal(err)
		}
		var last error
		Eventually(r.t, Ordinary+" is let into root", func() bool {
			last = bindOrdinary(r.t, client)
			return last == nil
		})
	})
}

func bindOrdinary(t testing.TB, admin kubernetes.Interface) error {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: Ordinary}, Rules: inRoot}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err := Bind(t.Context(), admin, User(Ordinary), Ordinary, "edit")
	return err
}

// User is a user, as bindings name one.
func User(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// Bind gives somebody ClusterRoles in a cluster, and returns the names of the bindings. It may be called again, if it
// has failed.
func Bind(ctx context.Context, in kubernetes.Interface, who rbacv1.Subject, roles ...string) (bindings []string, err error) {
	for _, role := range roles {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: who.Name + "-" + role}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{who},
		}
		if _, err := in.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		bindings = append(bindings, binding.Name)
	}
	return bindings, nil
}
