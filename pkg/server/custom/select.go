package custom

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// predicate makes a view's predicate one of stored objects. In one logical cluster the key selects the kind. Over all
// of them the predicate does. What fails tells of an object that the predicate could not judge.
func (v *view) predicate(ctx context.Context, p storage.SelectionPredicate) (_ storage.SelectionPredicate, fails *failure) {
	attributesOf := p.GetAttrs
	p.GetAttrs = attributes
	if p.Field == nil {
		p.Field = fields.Everything()
	}
	cluster, _ := clusters.From(ctx)
	selected := ofKind{Selector: p.Field, kind: collection(v.kind), kinds: kindsIn(ctx), everywhere: cluster == clusters.Wildcard}
	for _, r := range p.Field.Requirements() {
		if r.Field != fieldName && r.Field != fieldNamespace {
			selected.view, selected.attributes, selected.ctx, selected.short = v, attributesOf, ctx, shortenedIn(p.Field)
		}
	}
	selected.failed = newFailure()
	p.Field = selected
	return p, selected.failed
}

// failure is the first of several errors.
type failure struct {
	once sync.Once
	err  error
	is   chan struct{} // closed when there is an error
}

func newFailure() *failure { return &failure{is: make(chan struct{})} }

func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.is)
	})
}

func (f *failure) get() error {
	select {
	case <-f.is:
		return f.err
	default:
		return nil
	}
}

// ofKind selects objects of one kind, by a selector of the fields that a view shows.
type ofKind struct {
	fields.Selector
	kind string
	// kinds are those that are selected, if they are several.
	kinds sets.Set[string]
	// everywhere says that there are objects of other kinds, too.
	everywhere bool
	// view is set if the selector names fields that only the view knows, which attributes finds.
	view       *view
	attributes storage.AttrFunc
	short      fields.Selector // Selector, of shortened values
	ctx        context.Context //nolint:containedctx // that of the request: selectors take none
	failed     *failure
}

// Empty implements fields.Selector.
func (s ofKind) Empty() bool { return !s.everywhere && s.Selector.Empty() }

// Matches implements fields.Selector.
func (s ofKind) Matches(of fields.Fields) bool {
	if kind := of.Get(fieldKind); kind != s.kind && !s.kinds.Has(kind) {
		return false
	}
	if s.view == nil {
		return s.Selector.Matches(of)
	}
	raw := of.Get(fieldBytes)
	if raw == "" || s.failed.get() != nil {
		return false
	}
	find := func() (fields.Set, error) {
		visible, err := s.view.decode(s.ctx, []byte(raw))
		if err != nil {
			return nil, err
		}
		_, set, err := s.attributes(visible)
		return set, err
	}
	// whoever waits for one holds up nobody else, and its error is for the one who has asked
	if s.view.webhook != nil {
		set, err := find()
		if err != nil {
			s.failed.set(err) // it may match
		}
		return err == nil && s.Selector.Matches(set)
	}
	set, err := s.view.lookups.of(raw, find)
	return err == nil && s.short.Matches(set) // an object that cannot be shown has no fields
}

// DeepCopySelector implements fields.Selector.
func (s ofKind) DeepCopySelector() fields.Selector {
	s.Selector = s.Selector.DeepCopySelector()
	return s
}
