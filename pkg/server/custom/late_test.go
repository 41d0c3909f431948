package custom

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
	"github.com/regent-project/regent/test/until"
)

// late is a replica whose cache of definitions has stopped. stored is the definition as storage has it.
type late struct {
	*world
	client *storage.Client

	mu     sync.Mutex
	stored crd
}

const storedAt = "/registry/apiextensions.k8s.io/customresourcedefinitions/x7/widgets.example.com"

// change stores the definition as it is now. The cache does not hear of it.
func (l *late) change(t *testing.T, how func(crd)) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = l.stored.DeepCopy()
	how(l.stored)
	resp, err := l.client.Etcd().Put(t.Context(), storedAt, l.stored.String())
	if err != nil {
		t.Fatal(err)
	}
	l.stored.ResourceVersion = strconv.FormatInt(resp.Header.Revision, 10)
}

// remove removes it.
func (l *late) remove(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = nil
	if _, err := l.client.Etcd().Delete(t.Context(), storedAt); err != nil {
		t.Fatal(err)
	}
}

func (l *late) live(_ context.Context, _ logicalcluster.Name, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stored == nil {
		return nil, apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), name)
	}
	return l.stored, nil
}

// frozen is a source that shows one definition for ever, in the version that it has.
func frozen(d crd) *controllertest.Source[crd] {
	revision, _ := strconv.Atoi(d.ResourceVersion)
	source := controllertest.NewSource[crd]()
	for range revision {
		source.Set(d) // its own revisions count from 1
	}
	return source
}

func newLate(t *testing.T) *late {
	t.Helper()
	client, err := storage.NewClient(storage.Config{Transport: etcdtest.Start(t), Prefix: "/registry"})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := Open(storage.NewRESTOptionsGetter(client, func(schema.GroupResource) (storage.Encoding, error) { return Encoding(), nil }))
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(stored, HandlerConfig{
		Admission: Terminating{}, Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), RequestTimeout: time.Minute, MaxRequestBytes: 1 << 20,
	})
	l := &late{client: client, stored: widgets("")}
	l.stored.Annotations = map[string]string{logicalcluster.AnnotationKey: "x7"}
	l.stored.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	l.change(t, func(crd) {})
	own := NewOwn(controllertest.Informer(t, frozen(l.stored), controllers.DefinitionIndexers()), stored.Contents, l.live)
	listener := httptest.NewServer(inCluster(server.Wrap(own, func(string) bool { return false }, http.NotFoundHandler())))
	l.world = &world{url: listener.URL, server: server}
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
		server.EndCalls()
		stored.Close()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	until.So(t, "the watch cache is filled", func() bool { return stored.Ready() == nil })
	return l
}

// create makes a widget and returns what the server answers.
func (l *late) create(t *testing.T, name string) int {
	t.Helper()
	code, answer := l.do(t, http.MethodPost, "x7/apis/example.com/v1/namespaces/default/widgets", "application/json", widget(name, "{}"))
	if code != http.StatusCreated {
		t.Log(answer["message"])
	}
	return code
}

func (l *late) keys(t *testing.T) int64 {
	t.Helper()
	resp, err := l.client.Etcd().Get(t.Context(), "/registry"+Prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return resp.Count
}

// However late a replica hears of it, it makes no object of a definition that is being deleted, or has gone: nobody
// would delete the object.
func TestALateReplicaMakesNothingThatOutlivesItsDefinition(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *late){
		"being deleted": func(t *testing.T, l *late) {
			l.change(t, func(d crd) { d.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)} })
		},
		"gone": func(t *testing.T, l *late) { l.remove(t) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLate(t)
			if code := l.create(t, "a"); code != http.StatusCreated {
				t.Fatalf("create: %d", code)
			}
			l.change(t, func(d crd) { d.Labels = map[string]string{"a": "b"} })
			if code := l.create(t, "b"); code != http.StatusCreated {
				t.Errorf("after a change that is none to objects: %d", code)
			}
			begin(t, l)
			if code := l.create(t, "c"); code != http.StatusForbidden {
				t.Errorf("create: %d, want %d", code, http.StatusForbidden)
			}
			code, _ := l.do(t, http.MethodPatch, "x7/apis/example.com/v1/namespaces/default/widgets/d?fieldManager=me", "application/apply-patch+yaml", widget("d", "{}"))
			if code != http.StatusForbidden {
				t.Errorf("apply: %d, want %d", code, http.StatusForbidden)
			}
			if keys := l.keys(t); keys != 2 {
				t.Errorf("%d objects are stored, want 2", keys)
			}
		})
	}
}

// Quotas look at this.
func TestCustomObjectsCountAmongWhatALogicalClusterHas(t *testing.T) {
	l := newLate(t)
	before := l.client.StoredIn("x7").Objects
	for _, name := range []string{"a", "b"} {
		if code := l.create(t, name); code != http.StatusCreated {
			t.Fatalf("create: %d", code)
		}
	}
	until.So(t, "they are counted", func() bool { return l.client.StoredIn("x7").Objects == before+2 })
	if has := l.client.Stored("x7", Resource); has.Objects != 2 || has.Bytes == 0 {
		t.Errorf("of custom objects: %+v", has)
	}
	if other := l.client.StoredIn("y7"); other.Objects != 0 {
		t.Errorf("in another cluster: %+v", other)
	}
}
