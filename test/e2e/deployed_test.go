package e2e

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/test/e2e/harness"
)

// deployment is what examples/leader/deploy.yaml has, one of each.
type deployment struct {
	account    corev1.ServiceAccount
	role       rbacv1.Role
	binding    rbacv1.RoleBinding
	deployment appsv1.Deployment
	policy     networkingv1.NetworkPolicy
}

// readDeployment fails the test if a field is misspelt or a manifest is missing.
func readDeployment(t *testing.T) *deployment {
	t.Helper()
	text, err := os.ReadFile(harness.File("examples/leader/deploy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := &deployment{}
	missing := sets.New("ServiceAccount", "Role", "RoleBinding", "Deployment", "NetworkPolicy")
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text))); ; {
		one := make([]byte, len(text))
		n, err := documents.Read(one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		object, kind, err := decoder.Decode(one[:n], nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch object := object.(type) {
		case *corev1.ServiceAccount:
			d.account = *object
		case *rbacv1.Role:
			d.role = *object
		case *rbacv1.RoleBinding:
			d.binding = *object
		case *appsv1.Deployment:
			d.deployment = *object
		case *networkingv1.NetworkPolicy:
			d.policy = *object
		}
		missing.Delete(kind.Kind)
	}
	if len(missing) > 0 {
		t.Fatalf("deploy.yaml has no %q", sets.List(missing))
	}
	return d
}

// command is how a Pod of it runs the program.
func (d *deployment) command(binary, ip string, port int) []string {
	command := []string{"env", "POD_IP=" + ip, binary}
	for _, arg := range d.deployment.Spec.Template.Spec.Containers[0].Args {
		arg = strings.ReplaceAll(arg, "$(POD_NAMESPACE)", metav1.NamespaceDefault)
		if strings.HasPrefix(arg, "--probe-port=") {
			// Pods of one machine have addresses of their own, and processes have not
			arg = "--probe-port=" + strconv.Itoa(port)
		}
		command = append(command, arg)
	}
	return command
}

// right is one that a Role gives: a verb on a resource, or on one object of it.
type right struct{ group, resource, name, verb string }

func rights(role *rbacv1.Role) sets.Set[right] {
	all := sets.New[right]()
	for _, rule := range role.Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""} // any
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						all.Insert(right{group, resource, name, verb})
					}
				}
			}
		}
	}
	return all
}

// witness is a proxy in front of a server. It knows which rights were used, and which requests were refused for want of
// one.
type witness struct {
	*httptest.Server
	mu      sync.Mutex
	granted sets.Set[right]
	used    sets.Set[right]
	refused []string
}

func newWitness(t *testing.T, r *harness.Replica, granted sets.Set[right]) *witness {
	t.Helper()
	upstream, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: r.AdminConfig("").CAFile}})
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{granted: granted, used: sets.New[right]()}
	w.Server = httptest.NewTLSServer(&httputil.ReverseProxy{ // clients send tokens by TLS only
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(upstream) },
		Transport: transport, FlushInterval: -1,
		ModifyResponse: w.see,
		// a process was killed
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(w.Close)
	return w
}

// see takes down what a request needed, as the server's authorizer does.
func (w *witness) see(answer *http.Response) error {
	_, path, _ := strings.Cut(strings.TrimPrefix(answer.Request.URL.Path, "/clusters/"), "/")
	asked := answer.Request.Clone(answer.Request.Context())
	asked.URL.Path = "/" + path
	info, err := (&apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}).NewRequestInfo(asked)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized {
		w.refused = append(w.refused, asked.Method+" "+asked.URL.RequestURI())
		return nil
	}
	w.use(info, info.Verb)
	if info.Verb == "patch" && answer.StatusCode == http.StatusCreated {
		w.use(info, "create") // to apply what does not exist takes both
	}
	return nil
}

func (w *witness) use(info *apirequest.RequestInfo, verb string) {
	for _, name := range []string{info.Name, ""} {
		if asked := (right{info.APIGroup, info.Resource, name, verb}); w.granted.Has(asked) {
			w.used.Insert(asked)
			return
		}
	}
	w.refused = append(w.refused, fmt.Sprintf("%s %s %q, which the Role does not give", verb, info.Resource, info.Name))
}

// judge fails the test if the rights are not exactly those that were used.
func (w *witness) judge(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refused) > 0 {
		t.Errorf("the Role of deploy.yaml lacks a right, refused: %q", slices.Compact(w.refused))
	}
	for unused := range w.granted.Difference(w.used) {
		t.Errorf("the Role of deploy.yaml gives a right that nobody uses: %+v", unused)
	}
}

// kubeconfig is the account's, by way of the witness.
func (w *witness) kubeconfig(t *testing.T, admin kubernetes.Interface, account, cluster string) string {
	t.Helper()
	token, err := admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"it": {Server: w.URL + "/clusters/" + cluster, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"it": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"it": {Cluster: "it", AuthInfo: "it"}},
		CurrentContext: "it",
	}, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Two processes run as deploy.yaml has them: with its account's rights, all of which they need, and its flags. When the
// leader is killed, the other leads before the Lease expires.
func TestTheExampleLeadsWithExactlyTheRightsOfItsManifests(t *testing.T) {
	t.Parallel() // most of it is waiting
	binary := harness.Program(t, "leader")
	d := readDeployment(t)
	r := harness.NewShard(harness.StartEtcd(t).URL).Start(t, "a")
	r.WaitRoot()
	r.CreateWorkspace("deployed")
	cluster := r.WaitWorkspace("deployed")
	admin := r.Kube("root:deployed")
	for _, err := range []error{
		second(admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), &d.account, metav1.CreateOptions{})),
		second(admin.RbacV1().Roles(metav1.NamespaceDefault).Create(t.Context(), &d.role, metav1.CreateOptions{})),
		second(admin.RbacV1().RoleBindings(metav1.NamespaceDefault).Create(t.Context(), &d.binding, metav1.CreateOptions{})),
		// What a workspace asks of everybody who enters it, and a cluster of Kubernetes does not.
		second(harness.Bind(t.Context(), admin, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: d.account.Name}, "system:kcp:workspace:access")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w := newWitness(t, r, rights(&d.role))
	kubeconfig := w.kubeconfig(t, admin, d.account.Name, cluster)
	start := func(name string) *harness.Process {
		t.Helper()
		command := append(d.command(binary, "127.0.0.1", harness.FreePorts(t, 1)[0]), "--kubeconfig="+kubeconfig, "--cluster="+cluster)
		return harness.Start(t, name, command[0], command[1:]...)
	}
	first := start("first")
	counts := func(who *harness.Process) {
		t.Helper()
		harness.Eventually(t, "it counts", func() bool {
			got, err := admin.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "example", metav1.GetOptions{})
			return err == nil && got.Data["pid"] == strconv.Itoa(who.PID()) && got.Data["count"] != "0"
		})
	}
	counts(first)
	standby := start("second")
	harness.Eventually(t, "the second hears the first one's probe", func() bool { return len(standby.Lines("In contact with the leader's process")) == 1 })

	killed := time.Now()
	first.Kill()
	counts(standby)
	t.Logf("the second counts %v after the first was killed", time.Since(killed).Round(time.Millisecond))
	if len(standby.Lines(`"Leading"`, "its address refuses connections")) != 1 {
		t.Errorf("the second does not lead because the first one's process is gone: %q", standby.Lines(`"Leading"`))
	}
	standby.Signal(syscall.SIGTERM)
	if code := standby.Wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	w.judge(t)
}

func second[T any](_ T, err error) error { return err }

// The address, the port and the Secret of deploy.yaml are the same wherever it names them, and its Pods may reach each
// other there and nobody else may.
func TestTheManifestsOfTheExampleAgree(t *testing.T) {
	t.Parallel()
	d := readDeployment(t)
	pod := d.deployment.Spec.Template
	container := pod.Spec.Containers[0]
	flags := map[string]string{}
	for _, arg := range container.Args {
		name, value, _ := strings.Cut(arg, "=")
		flags[name] = value
	}
	fields := map[string]string{}
	for _, v := range container.Env {
		fields[v.Name] = v.ValueFrom.FieldRef.FieldPath
	}
	if fields["POD_IP"] != "status.podIP" || fields["POD_NAMESPACE"] != "metadata.namespace" || flags["--namespace"] != "$(POD_NAMESPACE)" {
		t.Errorf("a Pod does not know its address or its namespace: %v, %v", fields, flags)
	}
	port, from := d.policy.Spec.Ingress[0].Ports[0], d.policy.Spec.Ingress[0].From[0].PodSelector
	if open := strconv.Itoa(int(container.Ports[0].ContainerPort)); flags["--probe-port"] != open || port.Port.String() != open {
		t.Errorf("the probe's port is %s for the program, %s for the Pod and %s for the policy", flags["--probe-port"], open, port.Port)
	}
	for what, selector := range map[string]*metav1.LabelSelector{
		"the Deployment": d.deployment.Spec.Selector, "the policy": &d.policy.Spec.PodSelector, "the policy's peers": from,
	} {
		if len(selector.MatchLabels) == 0 {
			t.Errorf("%s selects everything", what)
		}
		for name, value := range selector.MatchLabels {
			if pod.Labels[name] != value {
				t.Errorf("%s selects Pods with %s=%s, and they have %v", what, name, value, pod.Labels)
			}
		}
	}
	if len(d.policy.Spec.Ingress) != 1 || len(d.policy.Spec.Ingress[0].From) != 1 || len(d.policy.Spec.Ingress[0].Ports) != 1 {
		t.Errorf("the policy lets in more than one kind of peer or port: %+v", d.policy.Spec.Ingress)
	}
	if pod.Spec.ServiceAccountName != d.account.Name || d.binding.Subjects[0].Name != d.account.Name || d.binding.RoleRef.Name != d.role.Name {
		t.Errorf("the Pods are %s, the binding is of %s to %s", pod.Spec.ServiceAccountName, d.binding.Subjects[0].Name, d.binding.RoleRef.Name)
	}
	if !rights(&d.role).Has(right{"", "secrets", flags["--secret"], "get"}) {
		t.Errorf("the Role does not let the Pods read the Secret %s", flags["--secret"])
	}
}
