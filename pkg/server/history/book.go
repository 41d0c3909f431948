package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/clusters"
)

const (
	// Name is what the names of the ConfigMaps with the entries begin with, in logical cluster system:admin:
	// regent-terms-00, regent-terms-01 ...
	Name = "regent-terms"
	// Label is on each of them. Its value is Name.
	Label = "regent.dev/record"
	// Most is how many entries are kept at least, and how many terms are told at most.
	Most = 256
	// tries is how often a write is tried whose ConfigMap somebody changes at the same time: the leaders of several
	// ranges that have begun together. pause is that after the first, and each is twice as long, or more.
	tries, pause = 6, 10 * time.Millisecond
)

// Book is the ConfigMaps: see pages. Writes carry the term's token, so that the order of the entries' numbers is the
// order of a range's terms, also when the Lease was deleted and epochs have begun again.
type Book struct {
	// Namespace is that of the Lease.
	Namespace string
}

// Add writes entries. What is oldest makes room for them, and what cannot be an entry goes. It makes no write for what
// is there already. The clients must be those of the term of one of the entries. Entries of other ranges, whose terms
// may have ended, can be written after those of their successors, which tell of them, too.
func (b Book) Add(ctx context.Context, kube kubernetes.Interface, entries ...Entry) error {
	ctx = clusters.With(ctx, clusters.SystemAdmin)
	err := b.add(ctx, kube, entries)
	pauses := wait.Backoff{Duration: pause, Factor: 2, Jitter: 1, Steps: tries - 1}
	for pauses.Steps > 0 && ctx.Err() == nil && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) {
		select {
		case <-time.After(pauses.Step()):
			err = b.add(ctx, kube, entries)
		case <-ctx.Done():
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write ConfigMaps %s/%s: %w", b.Namespace, Name, err)
	}
	return nil
}

// add finds the pages in what this replica last saw, which may be old, and reads them from etcd. It goes on until the
// pages that it has read are those to write.
func (b Book) add(ctx context.Context, kube kubernetes.Interface, entries []Entry) error {
	seen, err := b.list(ctx, kube)
	if err != nil {
		return err
	}
	for read := map[int]*corev1.ConfigMap{}; ; {
		full, changed := seen.withAll(entries)
		unread := slices.DeleteFunc(slices.Clone(changed), func(slot int) bool { return read[slot] != nil })
		for _, slot := range unread {
			stored, err := kube.CoreV1().ConfigMaps(b.Namespace).Get(ctx, nameOf(slot), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				stored = &corev1.ConfigMap{}
			} else if err != nil {
				return err
			}
			read[slot], seen[slot] = stored, stored.Data
		}
		if len(unread) > 0 {
			continue
		}
		for _, slot := range changed {
			if err := b.write(ctx, kube, slot, read[slot], full[slot]); err != nil {
				return err
			}
		}
		return nil
	}
}

// write writes a page. stored has no name if there is no such ConfigMap.
func (b Book) write(ctx context.Context, kube kubernetes.Interface, slot int, stored *corev1.ConfigMap, page map[string]string) (err error) {
	at := kube.CoreV1().ConfigMaps(b.Namespace)
	isNew := stored.Name == ""
	stored.Name, stored.Labels, stored.Data, stored.BinaryData = nameOf(slot), map[string]string{Label: Name}, page, nil
	if isNew {
		_, err = at.Create(ctx, stored, metav1.CreateOptions{})
	} else {
		_, err = at.Update(ctx, stored, metav1.UpdateOptions{})
	}
	return err
}

// Read returns the latest entries, the oldest first, as this replica last saw them. They can be read while etcd is
// away.
func (b Book) Read(ctx context.Context, kube kubernetes.Interface) ([]Entry, error) {
	seen, err := b.list(clusters.With(ctx, clusters.SystemAdmin), kube)
	if err != nil {
		return nil, fmt.Errorf("cannot read ConfigMaps %s/%s: %w", b.Namespace, Name, err)
	}
	return seen.entries(), nil
}

// list returns the pages as this replica last saw them.
func (b Book) list(ctx context.Context, kube kubernetes.Interface) (pages, error) {
	stored, err := kube.CoreV1().ConfigMaps(b.Namespace).List(ctx, metav1.ListOptions{LabelSelector: Label + "=" + Name, ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	seen := pages{}
	for _, cm := range stored.Items {
		if slot, ok := slotNamed(cm.Name); ok {
			seen[slot] = cm.Data
		}
	}
	return seen, nil
}
