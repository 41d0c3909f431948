package server

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

const (
	aNamespace = "default"
	aManager   = "some-manager"
	aFinalizer = "example.com/held"
)

// target is an object, or a part of it, in a logical cluster of its own, as a client reaches it.
type target struct {
	writable
	ctx    context.Context
	client dynamic.Interface
	dryRun []string
}

// by is the same object, reached by another client.
func (o target) by(client dynamic.Interface) target {
	o.client = client
	return o
}

func (o target) resource() dynamic.ResourceInterface {
	if o.namespaced {
		return o.client.Resource(o.gvr).Namespace(aNamespace)
	}
	return o.client.Resource(o.gvr)
}

// object is as a client would create it.
func (o target) object() *unstructured.Unstructured {
	out := o.stub()
	maps.Copy(out.Object, fromYAML(o.whole.body))
	return out
}

// stub has nothing but what tells which object it is.
func (o target) stub() *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetAPIVersion(o.gvr.GroupVersion().String())
	out.SetKind(o.kind)
	out.SetName(o.whole.nameOr("x"))
	return out
}

func (o target) get() (*unstructured.Unstructured, error) {
	return o.resource().Get(o.ctx, o.stub().GetName(), metav1.GetOptions{}, o.subresources...)
}

func (o target) put(obj *unstructured.Unstructured) error {
	_, err := o.resource().Update(o.ctx, obj, metav1.UpdateOptions{DryRun: o.dryRun}, o.subresources...)
	return err
}

func (o target) patch(kind types.PatchType, patch any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	opts := metav1.PatchOptions{DryRun: o.dryRun}
	if kind == types.ApplyPatchType {
		opts.FieldManager, opts.Force = aManager, ptr.To(true)
	}
	_, err = o.resource().Patch(o.ctx, o.stub().GetName(), kind, data, opts, o.subresources...)
	return err
}

func (o target) remove(opts metav1.DeleteOptions) error {
	opts.DryRun = o.dryRun
	return o.resource().Delete(o.ctx, o.stub().GetName(), opts)
}

func nothing(target) error { return nil }

// dry is the dry-run of a write.
func dry(do func(target) error) func(target) error {
	return func(o target) error {
		o.dryRun = []string{metav1.DryRunAll}
		return do(o)
	}
}

func create(o target) error { return createObject(o, o.object()) }

func createObject(o target, obj *unstructured.Unstructured) error {
	_, err := o.resource().Create(o.ctx, obj, metav1.CreateOptions{DryRun: o.dryRun})
	return err
}

func createGenerated(o target) error {
	obj := o.object()
	obj.SetName("")
	obj.SetGenerateName("x-")
	return createObject(o, obj)
}

func createHeld(o target) error {
	obj := o.object()
	obj.SetFinalizers([]string{aFinalizer})
	return createObject(o, obj)
}

// createAndApply leaves what was applied in an earlier second, as managedFields tell it: most applies that change
// nothing are of a later one.
func createAndApply(o target) error {
	if err := create(o); err != nil {
		return err
	}
	if err := apply(o); err != nil {
		return err
	}
	o.subresources = nil
	return change(o, func(obj *unstructured.Unstructured) {
		entries := obj.GetManagedFields()
		for n := range entries {
			entries[n].Time = ptr.To(metav1.NewTime(entries[n].Time.Add(-time.Hour)))
		}
		obj.SetManagedFields(entries)
		obj.SetAnnotations(map[string]string{"example.com/applied": "earlier"}) // times alone change nothing
	})
}

// createEmptied also takes the finalizer off that each new namespace has.
func createEmptied(o target) error {
	if err := create(o); err != nil {
		return err
	}
	return finalize(o)
}

// leave leaves an object that waits for its last finalizer.
func leave(o target) error {
	if err := createHeld(o); err != nil {
		return err
	}
	if err := remove(o); err != nil || !isNamespace(o.writable) {
		return err
	}
	return finalize(o)
}

// terminate leaves a namespace that waits to be finalized.
func terminate(o target) error {
	if err := create(o); err != nil {
		return err
	}
	return remove(o)
}

// finalize removes the finalizer that each new namespace has.
func finalize(o target) error {
	o.subresources = []string{"finalize"}
	return change(o, func(obj *unstructured.Unstructured) { unstructured.RemoveNestedField(obj.Object, "spec", "finalizers") })
}

func change(o target, how func(*unstructured.Unstructured)) error {
	obj, err := o.get()
	if err != nil {
		return err
	}
	how(obj)
	return o.put(obj)
}

func put(o target) error { return o.put(o.object()) }

func update(o target) error {
	return change(o, func(obj *unstructured.Unstructured) { mergeInto(obj.Object, o.changed()) })
}

func updateNothing(o target) error { return change(o, func(*unstructured.Unstructured) {}) }

func release(o target) error {
	return change(o, func(obj *unstructured.Unstructured) { obj.SetFinalizers(nil) })
}

func patch(kind types.PatchType) func(target) error {
	return func(o target) error { return o.patch(kind, o.changed()) }
}

func jsonPatch(o target) error {
	var operations []map[string]any
	for above, fields := range o.changed() {
		for field, value := range fields.(map[string]any) {
			operations = append(operations, map[string]any{"op": "add", "path": "/" + above + "/" + field, "value": value})
		}
	}
	return o.patch(types.JSONPatchType, operations)
}

// apply applies the whole object, or only what the subresource is for.
func apply(o target) error {
	obj := o.stub()
	if isWhole(o.writable) {
		obj = o.object()
	}
	mergeInto(obj.Object, o.changed())
	return o.patch(types.ApplyPatchType, obj.Object)
}

func patchNothing(o target) error { return o.patch(types.MergePatchType, map[string]any{}) }

func patchRelease(o target) error {
	return o.patch(types.MergePatchType, map[string]any{"metadata": map[string]any{"finalizers": nil}})
}

func remove(o target) error { return o.remove(metav1.DeleteOptions{}) }

// removeMissing succeeds if there is nothing to delete.
func removeMissing(o target) error {
	err := remove(o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return errors.New("there was something to delete")
	}
	return err
}

func removeThisOne(o target) error {
	obj, err := o.get()
	if err != nil {
		return err
	}
	return o.remove(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(obj.GetUID()), ResourceVersion: ptr.To(obj.GetResourceVersion())}})
}

func removeForeground(o target) error {
	return o.remove(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
}

func removeAll(o target) error {
	return o.resource().DeleteCollection(o.ctx, metav1.DeleteOptions{DryRun: o.dryRun}, metav1.ListOptions{})
}

func isWhole(r writable) bool     { return len(r.subresources) == 0 }
func freelyNamed(r writable) bool { return isWhole(r) && r.whole.name == "" }
func putCreates(r writable) bool  { return isWhole(r) && r.whole.putCreates }
func isNamespace(r writable) bool { return isWhole(r) && r.kind == "Namespace" }
func finalizes(r writable) bool   { return slices.Equal(r.subresources, []string{"finalize"}) }

// mergeInto is a merge patch without removals.
func mergeInto(into, from map[string]any) {
	for key, value := range from {
		inner, ok := value.(map[string]any)
		old, both := into[key].(map[string]any)
		if ok && both {
			mergeInto(old, inner)
			continue
		}
		into[key] = value
	}
}
