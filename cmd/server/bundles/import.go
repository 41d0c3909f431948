package bundles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/regent-project/regent/cmd/server/workspaces"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// atOnce is how many objects are created at the same time.
const atOnce = 8

// ImportOptions say how bundles are imported.
type ImportOptions struct {
	// Identities of age open what is sealed.
	Identities []age.Identity
	// Unchecked: ConfigMaps, Secrets and custom objects are written as they were, but with new uids, by whom
	// bundle.FreezePath is allowed. Nobody checks them.
	Unchecked bool
}

// Report is what has become of what was imported.
type Report struct {
	// Created, Updated and Deleted count objects. What every workspace has is updated, or deleted.
	Created int `json:"created"`
	Updated int `json:"updated"`
	Deleted int `json:"deleted"`
	// Left is what is of the old place and of no use in another one, Changed what was imported with a part left
	// out, and Refused what the server has refused.
	Left    []Leftover `json:"left,omitempty"`
	Changed []Note     `json:"changed,omitempty"`
	Refused []Note     `json:"refused,omitempty"`
}

// Leftover is about objects of a resource.
type Leftover struct {
	Resource string `json:"resource"`
	Objects  int    `json:"objects"`
	Why      string `json:"why"`
}

// Note is about an object.
type Note struct {
	Path string `json:"path"`
	Key  string `json:"key"`
	Why  string `json:"why"`
}

// Import makes a new workspace of the first bundle, and workspaces below it of the others. Objects get new uids, and
// their references to each other are kept: owners, and paths of workspaces that are imported, too. The error is of what
// ended the import; what was created until then stays, and the report tells of it.
func Import(ctx context.Context, client *workspaces.Client, all []*bundle.Bundle, to logicalcluster.Path, o ImportOptions) (*Report, error) {
	i := &importer{client: client, options: o, uids: map[types.UID]types.UID{}, byName: map[string]*destination{}}
	err := i.run(ctx, all, to)
	return &i.report, err
}

// importer imports bundles. Several goroutines create objects.
type importer struct {
	client  *workspaces.Client
	options ImportOptions
	places  []*destination
	// byName has the places by the paths and the names of the logical clusters that they are made of.
	byName map[string]*destination
	// only has the keys of what is created or updated. Nil: everything is.
	only map[string]bool

	mu     sync.Mutex
	uids   map[types.UID]types.UID // new ones, by those before
	report Report
}

// destination is the workspace that a bundle is imported into.
type destination struct {
	*bundle.Bundle
	from, to logicalcluster.Path
	api      *api
	// cluster is the name of the new logical cluster.
	cluster string
	// owned has the uids of the bundle's objects: of any other owner nobody knows what has become.
	owned map[types.UID]bool
	// bulk is how many objects of each phase may be written unchecked, and written has the keys of those that are.
	bulk    map[int]int
	written map[string]bool
	// waiting are objects whose owners are created in a later phase.
	waiting []*entry
}

// phases are what is created one after the other, in all workspaces: what others need comes first. What hinders others
// comes last.
var phases = []func(resource string) bool{
	isOneOf("namespaces"),
	isOneOf("secrets", "configmaps"),
	isOneOf("customresourcedefinitions.apiextensions.k8s.io", "apiresourceschemas.apis.kcp.io"),
	isOneOf("apiexports.apis.kcp.io"),
	isOneOf("apibindings.apis.kcp.io"),
	nil, // all others
	isOneOf(
		"validatingwebhookconfigurations.admissionregistration.k8s.io", "mutatingwebhookconfigurations.admissionregistration.k8s.io",
		"validatingadmissionpolicies.admissionregistration.k8s.io", "validatingadmissionpolicybindings.admissionregistration.k8s.io",
		"mutatingadmissionpolicies.admissionregistration.k8s.io", "mutatingadmissionpolicybindings.admissionregistration.k8s.io", "resourcequotas",
	),
}

func isOneOf(names ...string) func(string) bool {
	return func(resource string) bool { return slices.Contains(names, resource) }
}

// phaseOf returns in which phase a resource is created.
func phaseOf(resource string) int {
	others := 0
	for phase, of := range phases {
		switch {
		case of == nil:
			others = phase
		case of(resource):
			return phase
		}
	}
	return others
}

func (i *importer) run(ctx context.Context, all []*bundle.Bundle, to logicalcluster.Path) error {
	if err := i.prepare(all, to); err != nil {
		return err
	}
	for _, d := range i.places {
		if err := i.makeWorkspace(ctx, d); err != nil {
			return err
		}
	}
	if err := i.mayWriteUnchecked(ctx); err != nil {
		return err
	}
	for phase := range phases {
		for _, d := range i.places {
			err := i.writeUnchecked(ctx, d, phase)
			if err == nil {
				err = i.createAll(ctx, d, phase)
			}
			if err != nil {
				return fmt.Errorf("import into %s: %w", d.to, err)
			}
		}
		for _, d := range i.places {
			if err := i.settle(ctx, d, phase); err != nil {
				return fmt.Errorf("import into %s: %w", d.to, err)
			}
		}
	}
	return nil
}

// prepare says where each bundle goes, and reads all once: what is sealed for others is found before anything is made.
func (i *importer) prepare(all []*bundle.Bundle, to logicalcluster.Path) error {
	top := logicalcluster.NewPath(all[0].Path)
	for _, b := range all {
		from := logicalcluster.NewPath(b.Path)
		below, ok := strings.CutPrefix(b.Path+":", all[0].Path+":")
		if !ok {
			return fmt.Errorf("the file has a bundle of %s, which is not below %s: import bundles one by one that were not exported together", b.Path, top)
		}
		d := &destination{Bundle: b, from: from, to: to, owned: map[types.UID]bool{}, bulk: map[int]int{}, written: map[string]bool{}}
		if below = strings.TrimSuffix(below, ":"); below != "" {
			d.to = logicalcluster.NewPath(to.String() + ":" + below)
		}
		if !d.from.IsValid() || !d.to.IsValid() {
			return fmt.Errorf("the file has a bundle of %q, which is no path of a workspace", b.Path)
		}
		err := b.Each(func(o bundle.Object) error {
			uid, err := i.uidOf(o)
			if uid != "" {
				d.owned[uid] = true
			}
			if isBulk(o.Key) {
				d.bulk[phaseOf(resourceOf(o.Key))]++
			}
			return err
		})
		if err != nil {
			return err
		}
		i.places = append(i.places, d)
		i.byName[b.Path], i.byName[b.Cluster] = d, d
	}
	return nil
}

// uidOf returns the uid of an object, or nothing for what is none.
func (i *importer) uidOf(o bundle.Object) (types.UID, error) {
	o, err := i.open(o)
	if err != nil || o.Object == nil {
		return "", err
	}
	var obj metav1.PartialObjectMetadata
	err = utiljson.Unmarshal(o.Object, &obj) // which tells a user's field "Kind" from "kind"
	if err == nil && (obj.Kind == "" || obj.APIVersion == "") {
		err = errors.New("it has no kind or no apiVersion")
	}
	if err != nil {
		return "", fmt.Errorf("%s cannot be read: %w", o.Key, err)
	}
	return obj.UID, nil
}

// open returns what an object is. It has JSON, unless it was deleted or could not be read.
func (i *importer) open(o bundle.Object) (bundle.Object, error) {
	o, err := bundle.Unseal(o, i.options.Identities)
	if err == nil && o.Object == nil && !o.Deleted && o.Unreadable == "" {
		err = fmt.Errorf("%s has nothing in it: take another copy, or export it again", o.Key)
	}
	return o, err
}

// decode returns nil for what is no object.
func (i *importer) decode(o bundle.Object) (*unstructured.Unstructured, error) {
	o, err := i.open(o)
	if err != nil || o.Object == nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(o.Object); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", o.Key, err)
	}
	return obj, nil
}

// makeWorkspace makes the workspace, which must be new.
func (i *importer) makeWorkspace(ctx context.Context, d *destination) error {
	parent, ok := d.to.Parent()
	if !ok {
		return fmt.Errorf("%q is nothing that can be made: give the path of a new workspace, as in root:team-a", d.to)
	}
	if err := i.client.Create(ctx, parent, d.to.Base()); err != nil {
		return fmt.Errorf("%s: %w", d.to, err)
	}
	ready, err := i.client.WaitReady(ctx, parent, d.to.Base())
	if err != nil {
		return err
	}
	d.cluster = ready.Spec.Cluster
	d.api, err = newAPI(i.client.At(d.to))
	return err
}

// createAll creates the objects of a phase whose owners are there, as they are read: a bundle may have more of them
// than fit into memory. The others wait, if need be for a later phase.
func (i *importer) createAll(ctx context.Context, d *destination, phase int) error {
	waiting := d.waiting
	d.waiting = nil
	creating, within := errgroup.WithContext(ctx)
	creating.SetLimit(atOnce)
	err := d.Each(func(o bundle.Object) error {
		if phaseOf(resourceOf(o.Key)) != phase || d.written[o.Key] || i.only != nil && !i.only[o.Key] {
			return nil
		}
		one, err := i.take(within, d, o)
		switch {
		case one == nil:
		case i.resolveOwners(d, one):
			creating.Go(func() error { return i.create(within, d, one) })
		default:
			waiting = append(waiting, one)
		}
		return err
	})
	if failed := creating.Wait(); failed != nil { // which is why reading ended, if it did
		err = failed
	}
	if err != nil {
		return err
	}
	return i.createReady(ctx, d, waiting, phase == len(phases)-1)
}

// createReady creates those objects whose owners are there, again and again. The others wait, unless this is the last
// time: then they are created without owners.
func (i *importer) createReady(ctx context.Context, d *destination, waiting []*entry, last bool) error {
	for len(waiting) > 0 {
		var now, later []*entry
		for _, one := range waiting {
			if i.resolveOwners(d, one) {
				now = append(now, one)
			} else {
				later = append(later, one)
			}
		}
		if len(now) == 0 {
			if !last {
				break
			}
			for _, one := range later {
				one.obj.SetOwnerReferences(nil)
				i.note(&i.report.Changed, d, one.key, "it has no owners: they and it own each other, or were refused")
			}
			now, later = later, nil
		}
		if err := i.createSome(ctx, d, now); err != nil {
			return err
		}
		waiting = later
	}
	d.waiting = waiting
	return nil
}

// createSome creates objects, several at the same time.
func (i *importer) createSome(ctx context.Context, d *destination, some []*entry) error {
	creating, ctx := errgroup.WithContext(ctx)
	creating.SetLimit(atOnce)
	for _, one := range some {
		creating.Go(func() error { return i.create(ctx, d, one) })
	}
	return creating.Wait()
}

// entry is an object of a bundle that is to be created.
type entry struct {
	key string
	uid types.UID // before
	obj *unstructured.Unstructured
}

// resolveOwners gives an object the new uids of its owners. It returns false if one of them will have a uid later.
func (i *importer) resolveOwners(d *destination, one *entry) bool {
	owners := one.obj.GetOwnerReferences()
	if len(owners) == 0 {
		return true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var kept []metav1.OwnerReference
	for _, owner := range owners {
		uid, ok := i.uids[owner.UID]
		switch {
		case ok:
			owner.UID = uid
			kept = append(kept, owner)
		case d.owned[owner.UID]:
			return false
		}
	}
	if one.obj.SetOwnerReferences(kept); len(kept) < len(owners) {
		i.report.Changed = append(i.report.Changed, Note{d.to.String(), one.key, "an owner is not in the bundle, or was refused, and is no owner any more"})
	}
	return true
}

// create creates an object, or updates what every workspace has.
func (i *importer) create(ctx context.Context, d *destination, one *entry) error {
	made, updated, err := d.api.put(ctx, one.obj, strings.HasPrefix(one.key, "custom/"))
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		i.note(&i.report.Refused, d, one.key, err.Error())
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(d.owned, one.uid) // nobody waits for it
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.uids[one.uid] = made.GetUID()
	if updated {
		i.report.Updated++
	} else {
		i.report.Created++
	}
	return nil
}

func (i *importer) note(to *[]Note, d *destination, key, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	*to = append(*to, Note{d.to.String(), key, why})
}

// leave counts an object that is left behind.
func (i *importer) leave(resource, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for n := range i.report.Left {
		if i.report.Left[n].Resource == resource && i.report.Left[n].Why == why {
			i.report.Left[n].Objects++
			return
		}
	}
	i.report.Left = append(i.report.Left, Leftover{resource, 1, why})
}
