package electiontest

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// LeaseClient is election.LeaseClient, which tests of that package cannot import.
type LeaseClient interface {
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// CheckLeases is what an Elector takes for granted of a server of Leases, as a list of promises, each a subtest: the
// Store of this package is held to it, and so is each server with which electors of this module are used. client is for
// a namespace in which there is no Lease of that name. CheckLeases leaves none.
func CheckLeases(t *testing.T, client LeaseClient, name string) {
	c := &contract{client: client, name: name}
	for _, promise := range []struct {
		name string
		is   func(*contract, *testing.T)
	}{
		{"a list of what is not there is empty, and has a revision", (*contract).emptyList},
		{"an update of what is not there is not found", (*contract).updateOfNothing},
		{"a deletion of what is not there is not found", (*contract).deletionOfNothing},
		{"a dry run creates nothing", (*contract).dryRun},
		{"a creation gives a uid and a revision", (*contract).creation},
		{"a second creation says that it exists", (*contract).secondCreation},
		{"a creation with a revision is refused", (*contract).creationWithRevision},
		{"an update on the latest revision makes a later one", (*contract).update},
		{"an update on an older revision conflicts", (*contract).staleUpdate},
		{"an update for another uid conflicts", (*contract).updateOfAnother},
		{"a deletion of another uid conflicts", (*contract).deletionOfAnother},
		{"a deletion of an older revision conflicts", (*contract).staleDeletion},
		{"a watch from a list brings each later change in order", (*contract).watch},
		{"what is made anew has another uid and a later revision", (*contract).madeAnew},
	} {
		t.Run(promise.name, func(t *testing.T) { promise.is(c, t) })
	}
}

type contract struct {
	client LeaseClient
	name   string
	latest *coordinationv1.Lease // what the server has
}

const promptly = time.Minute

// within returns a context for one request.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), promptly)
	t.Cleanup(cancel)
	return ctx
}

func (c *contract) fresh() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a"), LeaseTransitions: ptr.To[int32](1)}}
}

func (c *contract) list(t *testing.T) *coordinationv1.LeaseList {
	t.Helper()
	list, err := c.client.List(within(t), metav1.ListOptions{FieldSelector: "metadata.name=" + c.name})
	if err != nil {
		t.Fatal(err)
	}
	if list.ResourceVersion == "" {
		t.Error("the list has no revision")
	}
	return list
}

// later checks that revision b is later than a.
func later(t *testing.T, a, b string) {
	t.Helper()
	if order, err := resourceversion.CompareResourceVersion(a, b); err != nil || order >= 0 {
		t.Errorf("revision %q is not later than %q: %v", b, a, err)
	}
}

func (c *contract) emptyList(t *testing.T) {
	if n := len(c.list(t).Items); n != 0 {
		t.Fatalf("there are %d Leases of that name", n)
	}
}

func (c *contract) updateOfNothing(t *testing.T) {
	lease := c.fresh()
	lease.ResourceVersion, lease.UID = "1", "nobody's"
	if _, err := c.client.Update(within(t), lease, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		t.Errorf("the answer is %v", err) // with a uid a server may say first that this is not the one
	}
}

func (c *contract) deletionOfNothing(t *testing.T) {
	if err := c.client.Delete(within(t), c.name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the answer is %v", err)
	}
}

func (c *contract) dryRun(t *testing.T) {
	if _, err := c.client.Create(within(t), c.fresh(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	c.emptyList(t)
}

func (c *contract) creation(t *testing.T) {
	before := c.list(t).ResourceVersion
	created, err := c.client.Create(within(t), c.fresh(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if created.UID == "" || created.Spec.LeaseTransitions == nil || *created.Spec.LeaseTransitions != 1 {
		t.Errorf("it has made %+v", created)
	}
	later(t, before, created.ResourceVersion)
	c.latest = created
	if list := c.list(t); len(list.Items) != 1 || list.Items[0].ResourceVersion != created.ResourceVersion {
		t.Errorf("the list after it is %+v", list)
	}
}

func (c *contract) secondCreation(t *testing.T) {
	if _, err := c.client.Create(within(t), c.fresh(), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the answer is %v", err)
	}
}

func (c *contract) creationWithRevision(t *testing.T) {
	lease := c.fresh()
	lease.ResourceVersion = "1"
	if _, err := c.client.Create(within(t), lease, metav1.CreateOptions{}); err == nil || apierrors.IsAlreadyExists(err) {
		t.Errorf("the answer is %v", err)
	}
}

func (c *contract) change(t *testing.T, holder string) *coordinationv1.Lease {
	t.Helper()
	next := c.latest.DeepCopy()
	next.Spec.HolderIdentity = &holder
	written, err := c.client.Update(within(t), next, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	later(t, c.latest.ResourceVersion, written.ResourceVersion)
	if written.UID != c.latest.UID {
		t.Errorf("the uid has changed from %s to %s", c.latest.UID, written.UID)
	}
	c.latest = written
	return written
}

func (c *contract) update(t *testing.T) {
	if written := c.change(t, "b"); *written.Spec.HolderIdentity != "b" {
		t.Errorf("it has written %+v", written.Spec)
	}
}

func (c *contract) staleUpdate(t *testing.T) {
	stale := c.latest.DeepCopy()
	c.change(t, "c")
	if _, err := c.client.Update(within(t), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("the answer is %v", err)
	}
}

func (c *contract) updateOfAnother(t *testing.T) {
	another := c.latest.DeepCopy()
	another.UID = "another"
	if _, err := c.client.Update(within(t), another, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("the answer is %v", err)
	}
}

func (c *contract) deletionOfAnother(t *testing.T) {
	err := c.client.Delete(within(t), c.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("another"))}})
	if !apierrors.IsConflict(err) {
		t.Errorf("the answer is %v", err)
	}
}

func (c *contract) staleDeletion(t *testing.T) {
	older := c.latest.ResourceVersion
	c.change(t, "later")
	err := c.client.Delete(within(t), c.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.latest.UID, ResourceVersion: &older}})
	if !apierrors.IsConflict(err) {
		t.Errorf("the answer is %v", err)
	}
}

func (c *contract) watch(t *testing.T) {
	from := c.list(t).ResourceVersion
	wants := []string{*c.change(t, "d").Spec.HolderIdentity, *c.change(t, "e").Spec.HolderIdentity}
	events, err := c.client.Watch(within(t), metav1.ListOptions{FieldSelector: "metadata.name=" + c.name, ResourceVersion: from, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	wants = append(wants, *c.change(t, "f").Spec.HolderIdentity)
	for _, want := range wants {
		if e := next(t, events); e.Type != watch.Modified || *e.Object.(*coordinationv1.Lease).Spec.HolderIdentity != want {
			t.Fatalf("the watch brings %+v, want holder %s", e, want)
		}
	}
	if err := c.client.Delete(within(t), c.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.latest.UID}}); err != nil {
		t.Fatal(err)
	}
	e := next(t, events)
	if e.Type != watch.Deleted {
		t.Fatalf("the watch brings %+v, want the deletion", e)
	}
	later(t, c.latest.ResourceVersion, e.Object.(*coordinationv1.Lease).ResourceVersion)
}

// next returns the next event of a watch that is no bookmark.
func next(t *testing.T, events watch.Interface) watch.Event {
	t.Helper()
	for {
		select {
		case e, open := <-events.ResultChan():
			if !open {
				t.Fatal("the watch has ended")
			}
			if e.Type != watch.Bookmark {
				return e
			}
		case <-within(t).Done():
			t.Fatalf("the watch brings nothing for %v", promptly)
		}
	}
}

func (c *contract) madeAnew(t *testing.T) {
	before := c.latest
	created, err := c.client.Create(within(t), c.fresh(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if created.UID == before.UID {
		t.Error("it has the uid of the one before")
	}
	later(t, before.ResourceVersion, created.ResourceVersion)
	if err := c.client.Delete(within(t), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.emptyList(t)
}
