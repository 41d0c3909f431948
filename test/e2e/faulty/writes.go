package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/test/e2e/history"
)

// writer makes a controller that writes all the time, in every way there is. It is sound: what makes it worth watching
// is that a write which it has begun is finished, whatever becomes of the term meanwhile, as with any reconcile that is
// under way. Each write tells its term, in the object or in its name, so that etcd's history can be judged (package
// history).
type writer struct {
	// unfenced has it write as the admin, without a token: what every controller did before there was fencing.
	unfenced bool
	// once has it make one write in each term instead, at its beginning.
	once bool
	// record is the file to which the writes of the register are appended; empty: none.
	record string
	// pause is how long each hand rests after a write, on average.
	pause time.Duration
	cfg   server.Config
}

// hands is how many writes are under way at any time, beside that of the register.
const hands = 4

// writeTimeout bounds one write, which does not end with its term: less than the drain timeout of short timings, 1 s.
const writeTimeout = 500 * time.Millisecond

func (w *writer) descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: "writer", Needs: []string{bootstrap.Name}, New: w.construct}
}

func (w *writer) construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	client, err := w.client(deps)
	if err != nil {
		return nil, err
	}
	if w.once {
		return &announcing{client: client, token: deps.Token}, nil
	}
	return &writing{client: client, token: deps.Token, record: w.record, pause: w.pause}, nil
}

func (w *writer) client(deps controllers.Deps) (kubernetes.Interface, error) {
	if !w.unfenced {
		return deps.Clients.Kube, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.cfg.RootDirectory, "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	if config.Host, err = url.JoinPath(w.cfg.BaseURL, "clusters", "root"); err != nil {
		return nil, err
	}
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

// writing is one term's.
type writing struct {
	client kubernetes.Interface
	token  fence.Token
	record string
	pause  time.Duration
}

// Run implements controllers.Controller.
func (w *writing) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for hand := range hands {
		all.Go(func() { w.each(ctx, func(ctx context.Context, n int) { w.write(ctx, hand, n) }) })
	}
	if w.record != "" {
		log, err := os.OpenFile(w.record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = log.Close() }()
		all.Go(func() {
			w.each(ctx, func(ctx context.Context, n int) { w.register(ctx, log, n) })
		})
	}
	all.Wait()
	return nil
}

// each calls do again and again until ctx ends, with a context that does not.
func (w *writing) each(ctx context.Context, do func(context.Context, int)) {
	for n := 0; ctx.Err() == nil; n++ {
		lasting, cancel := context.WithTimeout(clusters.With(context.WithoutCancel(ctx), "root"), writeTimeout)
		do(lasting, n)
		cancel()
		time.Sleep(w.pause/2 + rand.N(w.pause))
	}
}

// write makes one change, of some kind. Whether it succeeds is for etcd's history to tell.
func (w *writing) write(ctx context.Context, hand, n int) {
	objects := w.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	data := map[string]string{history.TermKey: history.TermOf(w.token), "n": fmt.Sprintf("%d-%d", hand, n)}
	shared := fmt.Sprintf("shared-%d", rand.IntN(3)) + history.RangeOf(w.token.Name)
	patch := func(kind types.PatchType, body string, subresources ...string) {
		force := kind == types.ApplyPatchType
		opts := metav1.PatchOptions{}
		if force {
			opts.Force, opts.FieldManager = &force, "writer"
		}
		_, _ = objects.Patch(ctx, shared, kind, []byte(body), opts, subresources...)
	}
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // a map of strings
	}
	own := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: history.OwnName(w.token, fmt.Sprintf("%d-%d", hand, n)), Labels: map[string]string{"hand": fmt.Sprint(hand), "term": history.TermOf(w.token)}},
			Data:       data,
		}
	}
	switch rand.IntN(8) {
	case 0:
		current, err := objects.Get(ctx, shared, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, _ = objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: shared}, Data: data}, metav1.CreateOptions{})
		} else if err == nil {
			current.Data = data
			_, _ = objects.Update(ctx, current, metav1.UpdateOptions{})
		}
	case 1:
		patch(types.MergePatchType, fmt.Sprintf(`{"data": %s}`, text))
	case 2:
		patch(types.StrategicMergePatchType, fmt.Sprintf(`{"data": %s}`, text))
	case 3:
		patch(types.JSONPatchType, fmt.Sprintf(`[{"op": "add", "path": "/data", "value": %s}]`, text))
	case 4:
		patch(types.ApplyPatchType, fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q}, "data": %s}`, shared, text))
	case 5: // created now, and deleted next
		made := own()
		_, _ = objects.Create(ctx, made, metav1.CreateOptions{})
		_ = objects.Delete(ctx, made.Name, metav1.DeleteOptions{})
	case 6: // by its term, not its epoch: who has never seen a Lease that was deleted begins with epoch 1 again
		_, _ = objects.Create(ctx, own(), metav1.CreateOptions{})
		_ = objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: fmt.Sprintf("hand=%d,term=%s", hand, history.TermOf(w.token))})
	case 7: // the finalizer is removed by an update that deletes
		made := own()
		made.Finalizers = []string{"example.com/writer"}
		_, _ = objects.Create(ctx, made, metav1.CreateOptions{})
		_ = objects.Delete(ctx, made.Name, metav1.DeleteOptions{})
		_, _ = objects.Patch(ctx, made.Name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	}
}

// register writes a register, and appends to the record what it asked for and what it was told.
func (w *writing) register(ctx context.Context, log *os.File, n int) {
	op := history.Write{Register: history.RegisterAt(time.Now(), w.token.Name), Term: history.TermOf(w.token), Value: fmt.Sprintf("%s.%d", history.TermOf(w.token), n), Call: time.Now()}
	_ = op.AppendTo(log)
	body, err := json.Marshal(map[string]any{"data": map[string]string{history.TermKey: op.Term, history.ValueKey: op.Value}})
	if err != nil {
		panic(err) // maps of strings
	}
	objects := w.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	_, err = objects.Patch(ctx, op.Register, types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: op.Register}, Data: map[string]string{history.TermKey: op.Term, history.ValueKey: op.Value}}
		_, err = objects.Create(ctx, made, metav1.CreateOptions{})
	}
	op.Return = time.Now()
	switch {
	case err == nil:
		op.Outcome = history.Made
	case fence.IsFenced(err):
		op.Outcome = history.Fenced
	default:
		op.Outcome = history.Unknown
	}
	_ = op.AppendTo(log)
}

// parseWriter reads the flag --writer.
func parseWriter(mode, record string) (*writer, error) {
	switch strings.TrimSpace(mode) {
	case "":
		return nil, nil
	case "fenced":
		return &writer{record: record}, nil
	case "unfenced":
		return &writer{unfenced: true, record: record}, nil
	case "once":
		return &writer{once: true}, nil
	default:
		return nil, errors.New("--writer is fenced, unfenced, once, or not given")
	}
}
