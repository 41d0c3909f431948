package encryption

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// transformer encrypts the objects of one resource with the keys in use.
type transformer struct {
	keys     *Keys
	resource schema.GroupResource
	// last is kept because to find a resource's transformer costs more than to ask whether the keys are the same.
	last atomic.Pointer[choice]
}

type choice struct {
	in          *generation
	transformer value.Transformer
}

func (t *transformer) now() value.Transformer {
	in := t.keys.current.Load()
	if last := t.last.Load(); last != nil && last.in == in {
		return last.transformer
	}
	f := &choice{in: in, transformer: in.transformers.TransformerForResource(t.resource)}
	t.last.Store(f)
	return f.transformer
}

// TransformFromStorage implements value.Transformer.
func (t *transformer) TransformFromStorage(ctx context.Context, data []byte, of value.Context) (out []byte, stale bool, err error) {
	return t.now().TransformFromStorage(ctx, data, of)
}

// TransformToStorage implements value.Transformer.
func (t *transformer) TransformToStorage(ctx context.Context, data []byte, of value.Context) ([]byte, error) {
	return t.now().TransformToStorage(ctx, data, of)
}
