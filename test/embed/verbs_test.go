package embed

import (
	"context"
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1beta1"
	"k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/fence"
)

func flunder(name, reference string) *v1alpha1.Flunder {
	return &v1alpha1.Flunder{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FlunderSpec{Reference: reference}}
}

// write is a request that would change something, or whose answer says that all is well.
type write struct {
	do     func(context.Context, versioned.Interface) error
	exists bool             // an object "x" is there before
	says   func(error) bool // what a living term is told; nil: that it is done
	keeps  bool             // etcd stays as it is, in a living term too
}

var dryRun = []string{metav1.DryRunAll}

// writes are all verbs, each also where nothing is written.
func writes() map[string]write {
	ns := metav1.NamespaceDefault
	x := func(ctx context.Context, c versioned.Interface) *v1alpha1.Flunder {
		plain, err := c.WardleV1alpha1().Flunders(ns).Get(ctx, "x", metav1.GetOptions{})
		if err != nil {
			panic(err)
		}
		return plain
	}
	patch := func(kind types.PatchType, body string, opts metav1.PatchOptions) func(context.Context, versioned.Interface) error {
		return func(ctx context.Context, c versioned.Interface) error {
			_, err := c.WardleV1alpha1().Flunders(ns).Patch(ctx, "x", kind, []byte(body), opts)
			return err
		}
	}
	const applied = `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"x","labels":{"a":"b"}}}`
	return map[string]write{
		"create": {do: func(ctx context.Context, c versioned.Interface) error {
			_, err := c.WardleV1alpha1().Flunders(ns).Create(ctx, flunder("x", ""), metav1.CreateOptions{})
			return err
		}},
		"create, dry": {keeps: true, do: func(ctx context.Context, c versioned.Interface) error {
			_, err := c.WardleV1alpha1().Flunders(ns).Create(ctx, flunder("x", ""), metav1.CreateOptions{DryRun: dryRun})
			return err
		}},
		"create what exists": {exists: true, keeps: true, says: apierrors.IsAlreadyExists, do: func(ctx context.Context, c versioned.Interface) error {
			_, err := c.WardleV1alpha1().Flunders(ns).Create(ctx, flunder("x", ""), metav1.CreateOptions{})
			return err
		}},
		"create of another resource": {do: func(ctx context.Context, c versioned.Interface) error {
			_, err := c.WardleV1alpha1().Fischers().Create(ctx, &v1alpha1.Fischer{ObjectMeta: metav1.ObjectMeta{GenerateName: "f-"}}, metav1.CreateOptions{})
			return err
		}},
		"create by another version": {do: func(ctx context.Context, c versioned.Interface) error {
			_, err := c.WardleV1beta1().Flunders(ns).Create(ctx, beta("x"), metav1.CreateOptions{})
			return err
		}},
		"update": {exists: true, do: func(ctx context.Context, c versioned.Interface) error {
			f := x(ctx, c)
			f.Labels = map[string]string{"changed": "yes"}
			_, err := c.WardleV1alpha1().Flunders(ns).Update(ctx, f, metav1.UpdateOptions{})
			return err
		}},
		"update, dry": {exists: true, keeps: true, do: func(ctx context.Context, c versioned.Interface) error {
			f := x(ctx, c)
			f.Labels = map[string]string{"changed": "yes"}
			_, err := c.WardleV1alpha1().Flunders(ns).Update(ctx, f, metav1.UpdateOptions{DryRun: dryRun})
			return err
		}},
		"update that changes nothing": {exists: true, keeps: true, do: func(ctx context.Context, c versioned.Interface) error {
			_, err := c.WardleV1alpha1().Flunders(ns).Update(ctx, x(ctx, c), metav1.UpdateOptions{})
			return err
		}},
		"update of another revision": {exists: true, keeps: true, says: apierrors.IsConflict, do: func(ctx context.Context, c versioned.Interface) error {
			f := x(ctx, c)
			f.ResourceVersion = "1"
			_, err := c.WardleV1alpha1().Flunders(ns).Update(ctx, f, metav1.UpdateOptions{})
			return err
		}},
		"json patch":                 {exists: true, do: patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, metav1.PatchOptions{})},
		"merge patch":                {exists: true, do: patch(types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`, metav1.PatchOptions{})},
		"patch that changes nothing": {exists: true, keeps: true, do: patch(types.MergePatchType, `{}`, metav1.PatchOptions{})},
		"patch of nothing":           {keeps: true, says: apierrors.IsNotFound, do: patch(types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`, metav1.PatchOptions{})},
		"strategic patch":            {exists: true, do: patch(types.StrategicMergePatchType, `{"metadata":{"labels":{"a":"b"}}}`, metav1.PatchOptions{})},
		"apply":                      {exists: true, do: patch(types.ApplyPatchType, applied, metav1.PatchOptions{FieldManager: "m"})},
		"apply of what is new":       {do: patch(types.ApplyPatchType, applied, metav1.PatchOptions{FieldManager: "m"})},
		"delete": {exists: true, do: func(ctx context.Context, c versioned.Interface) error {
			return c.WardleV1alpha1().Flunders(ns).Delete(ctx, "x", metav1.DeleteOptions{})
		}},
		"delete, dry": {exists: true, keeps: true, do: func(ctx context.Context, c versioned.Interface) error {
			return c.WardleV1alpha1().Flunders(ns).Delete(ctx, "x", metav1.DeleteOptions{DryRun: dryRun})
		}},
		"delete of nothing": {keeps: true, says: apierrors.IsNotFound, do: func(ctx context.Context, c versioned.Interface) error {
			return c.WardleV1alpha1().Flunders(ns).Delete(ctx, "x", metav1.DeleteOptions{})
		}},
		"deletion that waits for a finalizer": {exists: true, do: func(ctx context.Context, c versioned.Interface) error {
			return c.WardleV1alpha1().Flunders(ns).Delete(ctx, "x", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
		}},
		"deletecollection": {exists: true, do: func(ctx context.Context, c versioned.Interface) error {
			return c.WardleV1alpha1().Flunders(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
		"deletecollection of nothing": {keeps: true, do: func(ctx context.Context, c versioned.Interface) error {
			return c.WardleV1alpha1().Flunders(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
	}
}

// fates are what befalls a lease while its holder is paused, and whether its writes are accepted then.
var fates = map[string]struct {
	befall func(*world)
	live   bool
}{
	"nothing happens":                   {func(*world) {}, true},
	"it is renewed":                     {(*world).renew, true},
	"another takes it":                  {func(w *world) { w.take("another") }, false},
	"the same takes it, in a new epoch": {func(w *world) { w.take("me") }, false},
	"it is released":                    {(*world).release, false},
	"it is deleted":                     {(*world).remove, false},
	"it is deleted and made again": {func(w *world) {
		w.remove()
		w.edit(func(s *coordinationv1.LeaseSpec) {
			s.HolderIdentity, s.LeaseTransitions = ptr.To("me"), ptr.To[int32](1)
		})
	}, false},
}

// I2, for a server that is not ours.
func TestWritesOfEveryVerbAreHeldToTheirTerm(t *testing.T) {
	for stored, how := range map[string]func(*testing.T) *world{
		"plain":     func(t *testing.T) *world { return newWorld(t) },
		"encrypted": func(t *testing.T) *world { return newWorld(t, encrypted(t)) },
		"uncached": func(t *testing.T) *world {
			return newWorld(t, func(c *etcdfence.Config) { c.Etcd.EnableWatchCache = false })
		},
	} {
		t.Run(stored, func(t *testing.T) {
			w := how(t)
			for fate, what := range fates {
				for verb, write := range writes() {
					t.Run(verb+", "+fate, func(t *testing.T) { w.heldToItsTerm(t, write, what.befall, what.live) })
				}
			}
		})
	}
}

func (w *world) heldToItsTerm(t *testing.T, write write, befall func(*world), live bool) {
	w.reset(t, write.exists)
	w.remove()
	token := w.take("me")
	befall(w)
	before, keys := w.content()
	err := write.do(t.Context(), w.as(token))
	after, keysAfter := w.content()
	changed := before != after || keys != keysAfter
	switch {
	case !live && (!fence.IsFenced(err) || changed):
		t.Errorf("%v, changed: %t; want it fenced", err, changed)
	case live && write.says == nil && err != nil, live && write.says != nil && !write.says(err):
		t.Errorf("a living term is told %v", err)
	case live && changed == write.keeps:
		t.Errorf("changed: %t", changed)
	}
	var status apierrors.APIStatus
	if !live && errors.As(err, &status) && status.Status().Code != 412 {
		t.Errorf("it is told with %d", status.Status().Code)
	}
}

// reset makes the object exist, or not.
func (w *world) reset(t *testing.T, exists bool) {
	t.Helper()
	client := w.as(fence.Token{}).WardleV1alpha1().Flunders(metav1.NamespaceDefault)
	if f, err := client.Get(t.Context(), "x", metav1.GetOptions{}); err == nil && len(f.Finalizers) > 0 {
		f.Finalizers = nil
		if _, err := client.Update(t.Context(), f, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if !exists {
		return
	}
	if _, err := client.Create(t.Context(), flunder("x", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func beta(name string) *v1beta1.Flunder {
	return &v1beta1.Flunder{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
