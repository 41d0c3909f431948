package custom

import (
	"bytes"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// codec is between the store and the bytes. It decodes no more than the metadata: what an object has beside depends on
// the definition, and is decoded by views.
type codec struct{}

// Identifier implements runtime.Encoder.
func (codec) Identifier() runtime.Identifier { return "regent.dev/custom-objects" }

// Encode implements runtime.Encoder.
func (codec) Encode(obj runtime.Object, w io.Writer) error {
	o, ok := obj.(*object)
	if !ok {
		return fmt.Errorf("a %T is no custom object", obj)
	}
	raw, err := o.bytes()
	if err != nil {
		return err
	}
	_, err = w.Write(raw)
	return err
}

// Decode implements runtime.Decoder. The object keeps data.
func (codec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, ok := into.(*object)
	if into == nil {
		o, ok = &object{}, true
	}
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no custom object", into)
	}
	if err := o.parse(bytes.TrimRight(data, "\n")); err != nil {
		return nil, nil, err
	}
	kind := o.GroupVersionKind()
	return o, &kind, nil
}

var _ runtime.Codec = codec{}
