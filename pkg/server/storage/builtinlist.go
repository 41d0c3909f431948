package storage

import (
	"context"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
)

// GetList implements storage.Interface. Built-in objects are where they would be if they were stored, on whichever page
// that is.
func (b *builtIn) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	facts, cluster, ok := b.facts(ctx)
	switch {
	case ok && cluster == clusters.Wildcard:
		return b.listAll(ctx, facts, key, opts, list)
	case !ok:
		return b.Interface.GetList(ctx, key, opts, list)
	}
	objects, _, err := b.objects(ctx)
	if err != nil {
		return err
	}
	var here []keyed
	for _, obj := range objects {
		if of, err := b.key(obj); err != nil {
			return err
		} else if rest, ok := below(of, key, opts.Recursive); ok {
			here = append(here, keyed{rest, of, obj})
		}
	}
	if len(here) == 0 {
		return b.Interface.GetList(ctx, key, opts, list)
	}
	if err := b.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	p := page{list: list, asked: opts, key: func(obj runtime.Object) (string, error) {
		of, err := b.key(obj)
		rest, _ := below(of, key, opts.Recursive)
		return rest, err
	}}
	return p.merge(here, func(k keyed) (bool, error) {
		if opts.Predicate.Empty() {
			return false, nil
		}
		// What is stored may only not have been selected.
		there := b.newFunc()
		err := b.Interface.Get(ctx, k.key, storage.GetOptions{IgnoreNotFound: true, ResourceVersion: p.version()}, there)
		return versionOf(there) != "", err
	})
}

// below returns what of an object's key is below the key of a list, and is not ok if the object is not in the list.
func below(of, key string, recursive bool) (string, bool) {
	key = strings.TrimSuffix(key, "/")
	if !recursive {
		return "", of == key
	}
	return strings.CutPrefix(of, key+"/")
}

// keyed is a built-in object, and its key: that below the list's key, and the whole of it, without a cluster.
type keyed struct {
	below, key string
	runtime.Object
}

// page is an answer of stored objects, into which built-in ones are merged.
type page struct {
	list  runtime.Object
	asked storage.ListOptions
	// key returns the key of an item below that of the list.
	key func(runtime.Object) (string, error)
	// end is where the page ends because nobody has looked for what is built in behind it. Empty: nowhere.
	end string
}

func (p page) version() string {
	of, err := meta.ListAccessor(p.list)
	if err != nil {
		return ""
	}
	return of.GetResourceVersion()
}

// bounds returns the keys with which the page begins, and before which it ends. Empty: it has no such bound.
func (p page) bounds() (from, to string, err error) {
	const root = "/"
	if token := p.asked.Predicate.Continue; token != "" {
		if from, _, err = storage.DecodeContinue(token, root); err != nil {
			return "", "", err
		}
	}
	of, err := meta.ListAccessor(p.list)
	if err != nil {
		return "", "", err
	}
	if token := of.GetContinue(); token != "" {
		to, _, err = storage.DecodeContinue(token, root)
	}
	return strings.TrimPrefix(from, root), strings.TrimPrefix(to, root), err
}

// merge puts built-in objects, sorted by key, into the page if they are selected and belong there, and nothing is
// stored in their place. It takes out tombstones. hidden reports of an object that is not on the page, and is selected,
// whether it is stored nevertheless.
func (p page) merge(objects []keyed, hidden func(keyed) (bool, error)) error {
	from, to, err := p.bounds()
	if err != nil {
		return err
	}
	all, err := meta.GetItemsPtr(p.list)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(all).Elem()
	// done are the items that were looked at
	out, done := reflect.MakeSlice(items.Type(), 0, items.Len()+len(objects)), 0
	for _, k := range objects {
		if k.below < from || to != "" && k.below >= to {
			continue
		}
		at, there, err := p.find(items, done, k.below)
		if err != nil {
			return err
		}
		out, done = reflect.AppendSlice(out, items.Slice(done, at)), at
		if there {
			if obj, err := item(items, at); err != nil {
				return err
			} else if isTombstone(obj) {
				done++
			}
			continue
		}
		if selected, err := p.asked.Predicate.Matches(k.Object); err != nil {
			return err
		} else if !selected {
			continue
		}
		if stored, err := hidden(k); err != nil {
			return err
		} else if stored {
			continue
		}
		if out, err = withItem(out, k.Object); err != nil {
			return err
		}
	}
	items = reflect.AppendSlice(out, items.Slice(done, items.Len()))
	if p.end != "" {
		at, _, err := p.find(items, 0, p.end)
		if err != nil {
			return err
		}
		if items, err = p.cut(items, at, p.end); err != nil {
			return err
		}
	}
	if limit := int(p.asked.Predicate.Limit); limit > 0 && items.Len() > limit {
		last, err := item(items, limit-1)
		if err != nil {
			return err
		}
		key, err := p.key(last)
		if err != nil {
			return err
		}
		if items, err = p.cut(items, limit, key+"\x00"); err != nil {
			return err
		}
	}
	reflect.ValueOf(all).Elem().Set(items)
	return nil
}

// cut ends the page before an item. The next page begins with the key.
func (p page) cut(items reflect.Value, at int, next string) (reflect.Value, error) {
	of, err := meta.ListAccessor(p.list)
	if err != nil {
		return items, err
	}
	revision, err := strconv.ParseInt(of.GetResourceVersion(), 10, 64)
	if err != nil {
		return items, err
	}
	token, err := storage.EncodeContinue("/"+next, "/", revision)
	if err != nil {
		return items, err
	}
	if more := of.GetRemainingItemCount(); more != nil || of.GetContinue() == "" && p.end == "" && p.asked.Predicate.Empty() {
		remaining := int64(items.Len()-at) + ptr.Deref(more, 0)
		of.SetRemainingItemCount(&remaining)
	}
	of.SetContinue(token)
	return items.Slice3(0, at, at), nil
}

// find returns where in the sorted items, from one on, the key is, or would be.
func (p page) find(items reflect.Value, from int, key string) (at int, there bool, err error) {
	keyAt := func(i int) string {
		obj, failed := item(items, i)
		if failed == nil {
			var of string
			if of, failed = p.key(obj); failed == nil {
				return of
			}
		}
		err = failed
		return ""
	}
	at = from + sort.Search(items.Len()-from, func(i int) bool { return keyAt(from+i) >= key })
	there = at < items.Len() && keyAt(at) == key
	return at, there, err
}

func item(items reflect.Value, i int) (runtime.Object, error) {
	v := items.Index(i)
	if v.Kind() == reflect.Struct {
		v = v.Addr()
	}
	obj, ok := v.Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("a list has a %s, which is no object", v.Type())
	}
	return obj, nil
}

// withItem returns items with one more.
func withItem(items reflect.Value, obj runtime.Object) (reflect.Value, error) {
	v := reflect.ValueOf(obj)
	if items.Type().Elem().Kind() == reflect.Struct {
		v = v.Elem()
	}
	if !v.Type().AssignableTo(items.Type().Elem()) {
		return items, fmt.Errorf("a %T is no item of a list of %s", obj, items.Type().Elem())
	}
	return reflect.Append(items, v), nil
}

// listAll lists the objects of all logical clusters: what is stored, and then, at the same revision of etcd, the
// LogicalClusters that have built-in objects. A selector is applied to both here, because what it leaves out hides
// built-in objects, too.
func (b *builtIn) listAll(ctx context.Context, facts *BuiltIn, key string, opts storage.ListOptions, list runtime.Object) error {
	all := opts
	all.Predicate.Label, all.Predicate.Field = labels.Everything(), fields.Everything()
	if opts.ResourceVersionMatch != metav1.ResourceVersionMatchExact && opts.Predicate.Continue == "" {
		all.ResourceVersion, all.ResourceVersionMatch = "", "" // what is newest, which etcd has not compacted
	}
	if err := b.Interface.GetList(ctx, key, all, list); err != nil {
		return err
	}
	p := page{list: list, asked: all, key: b.clusterKey}
	objects, err := b.ofAll(ctx, facts, &p)
	if err != nil {
		return err
	}
	if err := p.merge(objects, func(keyed) (bool, error) { return false, nil }); err != nil {
		return err
	}
	return selectItems(list, opts.Predicate)
}

// clusterKey returns an object's key below that of all logical clusters.
func (b *builtIn) clusterKey(obj runtime.Object) (string, error) {
	of, err := b.key(obj)
	if err != nil {
		return "", err
	}
	is, err := meta.Accessor(obj)
	if err != nil {
		return "", err
	}
	return logicalcluster.From(is).String() + strings.TrimPrefix(of, b.prefix), nil
}

// pageOfClusters is how many LogicalClusters are read at a time to fill a page.
const pageOfClusters = 500

// ofAll returns the built-in objects of all logical clusters that may be on a page. It ends the page if it has looked
// for enough to fill it.
func (b *builtIn) ofAll(ctx context.Context, facts *BuiltIn, p *page) (out []keyed, err error) {
	from, to, err := p.bounds()
	if err != nil {
		return nil, err
	}
	source := b.client.clusterObjects.Load()
	if source == nil {
		return nil, nil
	}
	opts := storage.ListOptions{Recursive: true, ResourceVersion: p.version(), ResourceVersionMatch: metav1.ResourceVersionMatchExact, Predicate: storage.Everything}
	if p.asked.Predicate.Limit > 0 {
		opts.Predicate.Limit = pageOfClusters
	}
	if first, _, _ := strings.Cut(from, "/"); first != "" {
		revision, err := strconv.ParseInt(p.version(), 10, 64)
		if err != nil {
			return nil, err
		}
		if opts.Predicate.Continue, err = storage.EncodeContinue("/"+first, "/", revision); err != nil {
			return nil, err
		}
		opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	}
	for {
		list := &corev1alpha1.LogicalClusterList{}
		if err := source.GetList(ctx, source.prefix, opts, list); err != nil {
			return nil, fmt.Errorf("the logical clusters that have built-in %s: %w", b.resource, err)
		}
		for i := range list.Items {
			for _, obj := range b.of(clusters.BuiltIn{LogicalCluster: &list.Items[i], RootCA: facts.RootCA}) {
				key, err := b.clusterKey(obj)
				if err != nil {
					return nil, err
				}
				if to != "" && key >= to {
					return out, nil
				}
				out = append(out, keyed{below: key, Object: obj})
			}
		}
		if list.Continue == "" {
			return out, nil
		}
		if limit := p.asked.Predicate.Limit; limit > 0 && int64(len(out)) > limit {
			p.end = out[len(out)-1].below + "\x00"
			return out, nil
		}
		opts.Predicate.Continue, opts.ResourceVersion, opts.ResourceVersionMatch = list.Continue, "", ""
	}
}

// selectItems leaves the items of a list that a predicate selects.
func selectItems(list runtime.Object, predicate storage.SelectionPredicate) error {
	if predicate.Empty() {
		return nil
	}
	all, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(all).Elem()
	out := reflect.MakeSlice(items.Type(), 0, items.Len())
	for i := range items.Len() {
		obj, err := item(items, i)
		if err != nil {
			return err
		}
		selected, err := predicate.Matches(obj)
		if err != nil {
			return err
		}
		if selected {
			out = reflect.Append(out, items.Index(i))
		}
	}
	items.Set(out)
	return nil
}
