package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/regent-project/regent/test/e2e/harness"
)

// etcdHistory is all that was ever written into an etcd. A watch tells it, so it is there also after etcd has compacted
// it. It knows nothing of backups.
type etcdHistory struct {
	*testing.T
	client *clientv3.Client

	mu      sync.Mutex
	changes []etcdChange // in the order of their revisions
	upTo    int64
	fault   error
}

type etcdChange struct {
	key      string
	revision int64
	value    []byte // nil: it was deleted
}

// recordEtcd begins with an etcd that is empty, and ends with the test.
func recordEtcd(t *testing.T, client *clientv3.Client) *etcdHistory {
	t.Helper()
	h := &etcdHistory{T: t, client: client}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	changes := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1))
	var following sync.WaitGroup
	following.Go(func() {
		for some := range changes {
			h.learn(some)
		}
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
	return h
}

func (h *etcdHistory) learn(some clientv3.WatchResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := some.Err(); err != nil {
		h.fault = err
	}
	for _, e := range some.Events {
		c := etcdChange{key: string(e.Kv.Key), revision: e.Kv.ModRevision}
		if e.Type == clientv3.EventTypePut {
			c.value = append([]byte{}, e.Kv.Value...)
		}
		h.changes = append(h.changes, c)
	}
	h.upTo = max(h.upTo, some.Header.Revision)
}

// now returns the revision of etcd, once all up to it is known.
func (h *etcdHistory) now() int64 {
	h.Helper()
	answer, err := h.client.Get(h.Context(), "/", clientv3.WithKeysOnly())
	if err != nil {
		h.Fatal(err)
	}
	h.await(answer.Header.Revision)
	return answer.Header.Revision
}

func (h *etcdHistory) await(revision int64) {
	h.Helper()
	harness.Eventually(h, fmt.Sprint("etcd has told revision ", revision), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.upTo >= revision || h.fault != nil
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != nil {
		h.Fatal(h.fault)
	}
}

// all returns what etcd has told until now.
func (h *etcdHistory) all() []etcdChange {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.changes)
}

// between returns what was written behind a revision, up to another one.
func (h *etcdHistory) between(after, upTo int64) []etcdChange {
	h.await(upTo)
	h.mu.Lock()
	defer h.mu.Unlock()
	at := func(revision int64) int {
		n, _ := slices.BinarySearchFunc(h.changes, revision+1, func(c etcdChange, r int64) int { return cmp.Compare(c.revision, r) })
		return n
	}
	return slices.Clone(h.changes[at(after):at(upTo)])
}

// objects returns what a logical cluster had at a revision: by the keys of a bundle, as JSON.
func (h *etcdHistory) objects(cluster string, revision int64) map[string]string {
	h.Helper()
	stored := map[string][]byte{}
	for _, c := range h.between(0, revision) {
		if before, rest, ok := strings.Cut(c.key, "/"+cluster+"/"); ok {
			stored[strings.TrimPrefix(before, "/registry/")+"/"+rest] = c.value
		}
	}
	out := map[string]string{}
	for key, value := range stored {
		if value != nil {
			out[key] = asJSON(h, key, value)
		}
	}
	return out
}

// decodes are of all types that are stored as something else than JSON.
var decodes = sync.OnceValue(func() runtime.Decoder {
	types := runtime.NewScheme()
	if err := scheme.AddToScheme(types); err != nil {
		panic(err)
	}
	if err := apiextensionsv1.AddToScheme(types); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(types).UniversalDeserializer()
})

// asJSON returns an object that is JSON, or what etcd has, in one form: equal objects are equal strings.
func asJSON(t testing.TB, key string, value []byte) string {
	t.Helper()
	var fields map[string]any
	obj, kind, err := decodes().Decode(value, nil, nil)
	switch {
	case err == nil:
		obj.GetObjectKind().SetGroupVersionKind(*kind)
		fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	case runtime.IsNotRegisteredError(err):
		err = json.Unmarshal(value, &fields)
	}
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return string(text)
}
