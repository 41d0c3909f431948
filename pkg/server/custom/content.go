package custom

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"weak"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Content is what a definition says: its spec, and the names that were accepted. It does not say where. Definitions of
// all logical clusters that say the same share one Content, and what serves it. Content is immutable.
type Content struct {
	hash  contentHash
	spec  *apiextensionsv1.CustomResourceDefinitionSpec
	names *apiextensionsv1.CustomResourceDefinitionNames
	size  int // bytes

	mu      sync.Mutex
	handler http.Handler
}

type contentHash [sha256.Size]byte

// Spec returns what the definition wants. Do not modify it.
func (c *Content) Spec() *apiextensionsv1.CustomResourceDefinitionSpec { return c.spec }

// Names returns the names that were accepted. Do not modify them.
func (c *Content) Names() *apiextensionsv1.CustomResourceDefinitionNames { return c.names }

// ID returns a string that is the same for equal contents only.
func (c *Content) ID() string { return fmt.Sprintf("%x", c.hash[:16]) }

// definition returns a definition with this content that is in no logical cluster. It was established long ago:
// upstream's handler makes creations wait that come right after that, for replicas that have not heard of it.
func (c *Content) definition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: c.names.Plural + "." + c.spec.Group, UID: types.UID(c.ID())},
		Spec:       *c.spec,
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: *c.names,
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.Unix(0, 0)},
			},
		},
	}
}

// Contents are the contents of all definitions that somebody uses. What nobody uses any more is garbage: there is
// nothing to close.
type Contents struct {
	// forgotten is called when a content was collected.
	forgotten func(contentHash)

	mu  sync.Mutex
	all map[contentHash]weak.Pointer[Content]
}

// Of returns the content of a definition.
func (c *Contents) Of(spec *apiextensionsv1.CustomResourceDefinitionSpec, names *apiextensionsv1.CustomResourceDefinitionNames) (*Content, error) {
	hash, size, err := hashOf(spec, names)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if there := c.all[hash].Value(); there != nil {
		return there, nil
	}
	if c.all == nil {
		c.all = map[contentHash]weak.Pointer[Content]{}
	}
	made := &Content{hash: hash, spec: spec, names: names, size: size}
	c.all[hash] = weak.Make(made)
	runtime.AddCleanup(made, c.forget, hash)
	return made, nil
}

// Len returns how many contents are in use, or were until the last garbage collection.
func (c *Contents) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

func (c *Contents) forget(hash contentHash) {
	c.mu.Lock()
	if c.all[hash].Value() == nil { // otherwise there is a new one already
		delete(c.all, hash)
	}
	c.mu.Unlock()
	if c.forgotten != nil {
		c.forgotten(hash)
	}
}

// hashOf hashes the protobuf encodings, which are the same for equal values.
func hashOf(spec *apiextensionsv1.CustomResourceDefinitionSpec, names *apiextensionsv1.CustomResourceDefinitionNames) (contentHash, int, error) {
	first, err := spec.Marshal()
	if err != nil {
		return contentHash{}, 0, fmt.Errorf("encode a definition: %w", err)
	}
	second, err := names.Marshal()
	if err != nil {
		return contentHash{}, 0, fmt.Errorf("encode the names of a definition: %w", err)
	}
	size, both := len(first)+len(second), sha256.Sum256(first)
	return sha256.Sum256(append(both[:], second...)), size, nil
}
