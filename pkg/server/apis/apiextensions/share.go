package apiextensions

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"unsafe"
	"weak"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// What definitions of many logical clusters have in common is held once: schemas, specs, and what kubectl apply writes
// about a definition, which has the schemas a second time. They are nearly all of a definition.
var (
	schemas = shared[apiextensionsv1.CustomResourceValidation]{}
	specs   = shared[sharedSpec]{}
	applied = shared[byte]{}
)

// minShared is how long an annotation must be to be looked up, in bytes.
const minShared = 512

// share replaces parts of a definition by equal ones that others have. Nobody may modify it then. It returns the spec
// that it has now, or nil if specs like that are not shared.
func share(d definition) (spec *sharedSpec) {
	hash := sha256.New()
	bare := d.Spec // without schemas, which are large
	bare.Versions = slices.Clone(bare.Versions)
	for n := range d.Spec.Versions {
		schema := d.Spec.Versions[n].Schema
		if schema == nil {
			continue
		}
		if encoded, err := schema.Marshal(); err == nil {
			sum := sha256.Sum256(encoded)
			d.Spec.Versions[n].Schema, bare.Versions[n].Schema = schemas.of(sum, schema), nil
			_, _ = fmt.Fprintf(hash, "%d %x\n", n, sum) // a hash never fails
		}
	}
	if encoded, err := bare.Marshal(); err == nil && len(bare.Versions) > 0 && len(bare.Versions) <= maxVersions {
		_, _ = hash.Write(encoded)
		spec = specs.of([sha256.Size]byte(hash.Sum(nil)), newSharedSpec(d.Spec))
		d.Spec = spec.spec
	}
	shareRest(d)
	return spec
}

// shareRest is share of all but the spec, which is shared already.
func shareRest(d definition) {
	if reflect.DeepEqual(d.Status.AcceptedNames, d.Spec.Names) {
		d.Status.AcceptedNames = d.Spec.Names
	}
	for n := range d.Status.Conditions {
		c := &d.Status.Conditions[n]
		c.Type, c.Status = shareText(c.Type), shareText(c.Status)
		c.Reason, c.Message = shareText(c.Reason), shareText(c.Message)
	}
	if text := d.Annotations[corev1.LastAppliedConfigAnnotation]; len(text) >= minShared {
		first := applied.of(sha256.Sum256([]byte(text)), unsafe.StringData(text))
		d.Annotations[corev1.LastAppliedConfigAnnotation] = unsafe.String(first, len(text))
	}
}

// maxVersions is how many versions a spec may have that is shared. Nearly all have one or two.
const maxVersions = 3

// sharedSpec has the versions of its spec in itself. So it is there as long as a definition has them.
type sharedSpec struct {
	versions [maxVersions]apiextensionsv1.CustomResourceDefinitionVersion
	spec     apiextensionsv1.CustomResourceDefinitionSpec
}

func newSharedSpec(spec apiextensionsv1.CustomResourceDefinitionSpec) *sharedSpec {
	s := &sharedSpec{spec: spec}
	n := copy(s.versions[:], spec.Versions)
	s.spec.Versions = s.versions[:n:n]
	return s
}

// constants are the texts that nearly all conditions consist of, so that each has no copy of them.
var constants = func() map[string]string {
	all := map[string]string{}
	for _, text := range []string{
		string(apiextensionsv1.NamesAccepted), string(apiextensionsv1.Established), string(apiextensionsv1.ConditionTrue), string(apiextensionsv1.ConditionFalse),
		"NoConflicts", "no conflicts found", "InitialNamesAccepted", "the initial names have been accepted",
	} {
		all[text] = text
	}
	return all
}()

// shareText returns the constant that a text is, so that it is in memory once.
func shareText[T ~string](text T) T {
	if constant, ok := constants[string(text)]; ok {
		return T(constant)
	}
	return text
}

// shared finds values by their hashes, as long as somebody uses them.
type shared[T any] struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]weak.Pointer[T]
}

// of returns the value with a hash that is in use, or v, which is from then on.
func (s *shared[T]) of(hash [sha256.Size]byte, v *T) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if there := s.all[hash].Value(); there != nil {
		return there
	}
	if s.all == nil {
		s.all = map[[sha256.Size]byte]weak.Pointer[T]{}
	}
	s.all[hash] = weak.Make(v)
	runtime.AddCleanup(v, s.forget, hash)
	return v
}

// get returns the value with a hash if it is in use, and otherwise nil.
func (s *shared[T]) get(hash [sha256.Size]byte) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[hash].Value()
}

func (s *shared[T]) forget(hash [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[hash].Value() == nil { // otherwise there is a new one already
		delete(s.all, hash)
	}
}
