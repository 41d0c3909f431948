package bench

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/regent-project/regent/test/e2e/history"
)

// written is where the writers' ConfigMaps are in etcd: namespace default of logical cluster root.
const written = "/registry/core/configmaps/root/default/"

// write is one that etcd told of.
type write struct {
	name, term string
	pid        int
	at         time.Time // when the watch brought it
}

// plainly is where they are in the etcd of a kube-apiserver.
const plainly = "/registry/configmaps/default/"

// writes are those of all writers, since the benchmark began.
type writes struct {
	mu     sync.Mutex
	byName map[string]chan write
	failed chan error
	read   func(*mvccpb.KeyValue) (write, error)
}

// follow watches what is below a prefix until the benchmark ends. read says what was written; a write without a term
// counts for nothing.
func follow(b testing.TB, client *clientv3.Client, below string, read func(*mvccpb.KeyValue) (write, error)) *writes {
	b.Helper()
	w := &writes{byName: map[string]chan write{}, failed: make(chan error, 1), read: read}
	ctx, cancel := context.WithCancel(context.Background())
	events := client.Watch(clientv3.WithRequireLeader(ctx), below, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if first, ok := <-events; !ok || first.Err() != nil {
		b.Fatalf("cannot watch etcd: %v", first.Err())
	}
	var following sync.WaitGroup
	following.Go(func() {
		for resp := range events {
			if err := w.take(resp, time.Now()); err != nil {
				w.failed <- err
				return
			}
		}
	})
	b.Cleanup(func() {
		cancel()
		following.Wait()
	})
	return w
}

func (w *writes) take(resp clientv3.WatchResponse, now time.Time) error {
	if err := resp.Err(); err != nil {
		return err
	}
	for _, e := range resp.Events {
		if e.Type == clientv3.EventTypeDelete {
			continue
		}
		got, err := w.read(e.Kv)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", e.Kv.Key, err)
		}
		if got.term != "" {
			got.at = now
			w.of(got.name) <- got
		}
	}
	return nil
}

// configMap reads what the writers write.
func configMap(kv *mvccpb.KeyValue) (write, error) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(kv.Value, nil, nil)
	if err != nil {
		return write{}, err
	}
	data := object.(*corev1.ConfigMap).Data
	if data[history.TermKey] == "" {
		return write{}, nil // nobody's first write
	}
	pid, err := strconv.Atoi(data[history.PIDKey])
	return write{name: path.Base(string(kv.Key)), term: data[history.TermKey], pid: pid}, err
}

// of are the writes of a name, in their order.
func (w *writes) of(name string) chan write {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.byName[name]
	if !ok {
		c = make(chan write, 1000)
		w.byName[name] = c
	}
	return c
}

// waiting returns a write that nobody has asked for yet, if there is one.
func (w *writes) waiting(name string) (write, bool) {
	select {
	case got := <-w.of(name):
		return got, true
	default:
		return write{}, false
	}
}

// next waits for the first write of another term than the given one. It does not poll: this process leaves the machine
// alone while it measures.
func (w *writes) next(b *testing.B, name, term string) write {
	b.Helper()
	const patience = 2 * time.Minute
	timeout := time.After(patience)
	for {
		select {
		case got := <-w.of(name):
			if got.term != term {
				return got
			}
		case err := <-w.failed:
			b.Fatalf("the watch on etcd has ended: %v", err)
		case <-timeout:
			b.Fatalf("no write of another term than %q to %s within %v", term, name, patience)
		}
	}
}
