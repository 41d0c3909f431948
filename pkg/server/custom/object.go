package custom

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// object is a custom object as it is stored: its bytes, and the metadata that storage and the watch cache need. It
// knows no schema, so objects of all kinds are of one type, and share one watch cache. Copies share the bytes, which
// nobody modifies.
type object struct {
	metav1.TypeMeta
	// ObjectMeta has no managedFields. They are in the bytes, and nobody below the views needs them.
	metav1.ObjectMeta
	// body is nil for an object that does not exist.
	body *body
	// marked says that the annotations are newer than those in the bytes.
	marked bool
}

// body is what is stored of an object, with what views have made of it.
type body struct {
	raw []byte

	mu    sync.Mutex
	forms []form
}

// form is an object as a view shows it.
type form struct {
	of              *view
	resourceVersion string
	content         map[string]any
}

// maxForms is how many forms of an object are kept. Few kinds are read in more versions at a time.
const maxForms = 2

// form returns what a view has kept, and nil if it has kept nothing.
func (b *body) form(of *view, resourceVersion string) map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.forms {
		if f.of == of && f.resourceVersion == resourceVersion {
			return f.content
		}
	}
	return nil
}

// keep keeps a form in place of the oldest one.
func (b *body) keep(f form) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forms = slices.DeleteFunc(b.forms, func(old form) bool { return old.of == f.of && old.resourceVersion == f.resourceVersion })
	if len(b.forms) >= maxForms {
		b.forms = b.forms[:copy(b.forms, b.forms[1:])]
	}
	b.forms = append(b.forms, f)
}

// parse reads the metadata from the bytes of an object. It tells names apart by case, as whatever shows the object
// does: a user's own field "Kind" is another one than "kind".
func (o *object) parse(raw []byte) error {
	var head struct {
		metav1.TypeMeta
		Metadata struct {
			metav1.ObjectMeta
			// ManagedFields hides the embedded ones, which would be parsed in vain.
			ManagedFields json.RawMessage `json:"managedFields,omitempty"`
		} `json:"metadata"`
	}
	if err := utiljson.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("a custom object that is no JSON: %w", err)
	}
	o.TypeMeta, o.ObjectMeta, o.body, o.marked = head.TypeMeta, head.Metadata.ObjectMeta, &body{raw: raw}, false
	return nil
}

// bytes returns what is to be stored.
func (o *object) bytes() ([]byte, error) {
	if o.body == nil {
		return []byte("{}"), nil
	}
	if !o.marked {
		return o.body.raw, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(o.body.raw, &fields); err != nil {
		return nil, fmt.Errorf("a custom object that is no JSON: %w", err)
	}
	var metadata map[string]json.RawMessage
	if err := json.Unmarshal(fields["metadata"], &metadata); err != nil {
		return nil, fmt.Errorf("metadata of a custom object: %w", err)
	}
	var err error
	if metadata["annotations"], err = json.Marshal(o.Annotations); err != nil {
		return nil, fmt.Errorf("annotations of a custom object: %w", err)
	}
	if fields["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, fmt.Errorf("metadata of a custom object: %w", err)
	}
	return json.Marshal(fields)
}

// SetAnnotations implements metav1.Object.
func (o *object) SetAnnotations(annotations map[string]string) {
	o.Annotations, o.marked = annotations, true
}

// GetObjectKind implements runtime.Object.
func (o *object) GetObjectKind() schema.ObjectKind { return &o.TypeMeta }

// DeepCopyObject implements runtime.Object.
func (o *object) DeepCopyObject() runtime.Object {
	out := &object{TypeMeta: o.TypeMeta, body: o.body, marked: o.marked}
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

// objectList is a list of stored objects of any kinds.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []object
}

// GetObjectKind implements runtime.Object.
func (l *objectList) GetObjectKind() schema.ObjectKind { return &l.TypeMeta }

// DeepCopyObject implements runtime.Object.
func (l *objectList) DeepCopyObject() runtime.Object {
	out := &objectList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy(), Items: make([]object, len(l.Items))}
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*object)
	}
	return out
}

var (
	_ runtime.Object            = (*object)(nil)
	_ metav1.ObjectMetaAccessor = (*object)(nil)
	_ runtime.Object            = (*objectList)(nil)
)
