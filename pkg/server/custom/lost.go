package custom

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A definition may lose a version in which there are objects, if somebody takes it off status.storedVersions, too. That
// is how a migration ends, and objects that it has missed must not be stuck: they are shown, changed and deleted as any
// others. Upstream refuses to convert them, and with one of them each list.

// readAny decodes bytes without a webhook. Those of a version that the definition has lost are read as the view's own:
// without a webhook all versions differ in their names only.
func (v *view) readAny(raw []byte) (*unstructured.Unstructured, error) {
	out, err := v.read(raw)
	if err == nil || !v.hasLost(versionOf(raw)) {
		return out, err
	}
	var stored unstructured.Unstructured
	if err := stored.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("a custom object of a lost version: %w", err)
	}
	stored.SetAPIVersion(v.apiVersion())
	renamed, err := stored.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("a custom object of a lost version: %w", err)
	}
	return v.read(renamed)
}

// hasLost reports whether an API version is of the view's group, but not in its definition.
func (v *view) hasLost(apiVersion string) bool {
	gv, err := schema.ParseGroupVersion(apiVersion)
	return err == nil && gv.Group == v.kind.Group && v.others[gv.Version] == nil
}

// keepManagers has upstream keep who manages what, of an object that is about to be changed: it refuses what was
// applied in a version that the definition has lost. Without a webhook that is the same in the view's version; with one
// it cannot be known, and is forgotten, as upstream does for versions that it does not know.
func (v *view) keepManagers(u *unstructured.Unstructured) {
	entries := u.GetManagedFields()
	if !slices.ContainsFunc(entries, v.ofLost) {
		return
	}
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		if v.ofLost(entry) {
			if v.webhook != nil {
				continue
			}
			entry.APIVersion = v.apiVersion()
		}
		if !slices.ContainsFunc(kept, func(other metav1.ManagedFieldsEntry) bool {
			return other.Manager == entry.Manager && other.Operation == entry.Operation && other.APIVersion == entry.APIVersion && other.Subresource == entry.Subresource
		}) {
			kept = append(kept, entry)
		}
	}
	u.SetManagedFields(kept)
}

func (v *view) ofLost(entry metav1.ManagedFieldsEntry) bool { return v.hasLost(entry.APIVersion) }

// errLost tells who may mend it how.
func errLost(kind schema.GroupKind, version string) error {
	return fmt.Errorf("the object is stored in version %[1]s, which the definition of %[2]s.%[3]s has no more, and its webhook is asked for versions of the definition only: "+
		"add %[1]s to spec.versions again (served: false will do), and write each object once before the version goes", version, kind.Kind, kind.Group)
}
