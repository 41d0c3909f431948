package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/regent-project/regent/test/e2e/harness"
)

// user has a tree of workspaces that nobody else touches, and remembers what it was told about it.
type user struct {
	*testing.T
	name   string
	random *rand.Rand
	fronts []*harness.Front
	n      int
	mine   []*owned
	done   map[string]int
}

// owned is a workspace whose creation was acknowledged.
type owned struct {
	path string
	// ready: it was seen to be. written are the ConfigMaps whose creation was acknowledged.
	ready   bool
	written map[string]bool
	// deleted: the deletion was acknowledged, of it or of one above. unknown: it may have been.
	deleted, unknown bool
}

func (o *owned) split() (parent, name string) {
	at := strings.LastIndex(o.path, ":")
	return o.path[:at], o.path[at+1:]
}

func newUser(t *testing.T, name string, random *rand.Rand, fronts []*harness.Front) *user {
	return &user{T: t, name: name, random: random, fronts: fronts, done: map[string]int{}}
}

// start has the user act until the returned function is called.
func (u *user) start() (stop func()) {
	ctx, cancel := context.WithCancel(u.Context())
	var acting sync.WaitGroup
	acting.Go(func() {
		for ctx.Err() == nil {
			u.act()
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		acting.Wait()
	}
}

// patience is how long a user waits for an answer.
const patience = 5 * time.Second

func (u *user) act() {
	ctx, cancel := context.WithTimeout(u.Context(), patience)
	defer cancel()
	front := u.fronts[u.random.IntN(len(u.fronts))]
	o := u.any()
	switch what := u.random.IntN(20); {
	case o == nil, what == 0:
		u.create(ctx, front, o)
	case !o.ready:
		u.look(ctx, front, o)
	case what == 1:
		u.remove(ctx, front, o)
	case what < 11 || len(o.written) == 0:
		u.write(ctx, front, o)
	default:
		u.read(ctx, front, o)
	}
}

// any is one of the workspaces that must be there, nil if there is none.
func (u *user) any() *owned {
	var there []*owned
	for _, o := range u.mine {
		if !o.deleted && !o.unknown {
			there = append(there, o)
		}
	}
	if len(there) == 0 {
		return nil
	}
	return there[u.random.IntN(len(there))]
}

// noteAnswer counts what the user was told. What cannot be so fails the test.
func (u *user) noteAnswer(did string, err error) (ok bool) {
	switch {
	case err == nil:
		u.done[did]++
		return true
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsGone(err):
		u.Errorf("%s: what %s is told cannot be so: %v", time.Now().Format(time.TimeOnly), u.name, err)
	}
	u.done["was refused"]++
	return false
}

// create creates a workspace, in root or below another one.
func (u *user) create(ctx context.Context, f *harness.Front, below *owned) {
	parent := "root"
	if below != nil && below.ready && u.random.IntN(2) == 0 && strings.Count(below.path, ":") < 3 {
		parent = below.path
	}
	u.n++
	name := fmt.Sprintf("%s-%d", u.name, u.n)
	_, err := f.Dynamic(parent).Resource(harness.Workspaces).Create(ctx, harness.NewWorkspace(name), metav1.CreateOptions{})
	if u.noteAnswer("created", err) {
		u.mine = append(u.mine, &owned{path: parent + ":" + name, written: map[string]bool{}})
	}
}

func (u *user) look(ctx context.Context, f *harness.Front, o *owned) {
	parent, name := o.split()
	ws, err := f.Dynamic(parent).Resource(harness.Workspaces).Get(ctx, name, metav1.GetOptions{})
	if u.noteAnswer("looked", err) {
		phase, _, _ := unstructured.NestedString(ws.Object, "status", "phase")
		o.ready = phase == "Ready"
	}
}

func (u *user) remove(ctx context.Context, f *harness.Front, o *owned) {
	parent, name := o.split()
	err := f.Dynamic(parent).Resource(harness.Workspaces).Delete(ctx, name, metav1.DeleteOptions{})
	ok := u.noteAnswer("deleted", err)
	for _, other := range u.mine {
		if other == o || strings.HasPrefix(other.path, o.path+":") {
			other.deleted, other.unknown = other.deleted || ok, other.unknown || !ok
		}
	}
}

func (u *user) write(ctx context.Context, f *harness.Front, o *owned) {
	u.n++
	name := fmt.Sprintf("written-%d", u.n)
	_, err := f.Kube(o.path).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if u.noteAnswer("wrote", err) {
		o.written[name] = true
	}
}

func (u *user) read(ctx context.Context, f *harness.Front, o *owned) {
	for name := range o.written {
		_, err := f.Kube(o.path).CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		u.noteAnswer("read", err)
		return
	}
}

// check checks, when nothing is in motion any more, that through each front all is as the user was told.
func (u *user) check(fronts []*harness.Front) {
	u.Helper()
	for _, f := range fronts {
		for _, o := range u.mine {
			parent, name := o.split()
			if o.deleted {
				_, err := f.Dynamic(parent).Resource(harness.Workspaces).Get(u.Context(), name, metav1.GetOptions{})
				if !apierrors.IsNotFound(err) && !(u.hasLeft(parent) && apierrors.IsForbidden(err)) {
					u.Errorf("%s was deleted, and through %s: %v", o.path, f.Name(), err)
				}
				continue
			}
			if !o.unknown {
				u.has(f, o)
			}
		}
	}
}

// hasLeft reports whether a cluster is one of the user's that was deleted, or may have been. Of such it is told what
// strangers are told.
func (u *user) hasLeft(path string) bool {
	for _, o := range u.mine {
		if o.path == path && (o.deleted || o.unknown) {
			return true
		}
	}
	return false
}

func (u *user) has(f *harness.Front, o *owned) {
	u.Helper()
	list, err := f.Kube(o.path).CoreV1().ConfigMaps("default").List(u.Context(), metav1.ListOptions{})
	if err != nil {
		u.Errorf("%s was created, and through %s: %v", o.path, f.Name(), err)
		return
	}
	there := map[string]bool{}
	for _, cm := range list.Items {
		there[cm.Name] = true
	}
	for name := range o.written {
		if !there[name] {
			u.Errorf("%s was written in %s, and through %s it is not there", name, o.path, f.Name())
		}
	}
}
