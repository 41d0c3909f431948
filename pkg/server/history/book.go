package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/status"
)

// Name is the name of the ConfigMap that has the entries, in logical cluster system:admin.
const Name = "regent-terms"

const (
	// Most is how many entries are kept, and how many terms are told.
	Most = 256
	// mostBytes is how large all entries together may be. Each has some 700 bytes.
	mostBytes = 256 << 10
	// tries is how often a write is tried whose ConfigMap somebody changes at the same time.
	tries = 3
)

// Book is the ConfigMap. It has one key for each entry: a number that grows with each write. Writes carry the term's token, so that the
// order of the numbers is the order of the terms, also when the Lease was deleted and epochs have begun again.
type Book struct {
	// Namespace is that of the Lease.
	Namespace string
}

// Add writes an entry, and drops the oldest ones if there are too many, and what cannot be an entry. It makes no write if the entry is there
// already. The clients must be those of the entry's term.
func (b Book) Add(ctx context.Context, kube kubernetes.Interface, e Entry) error {
	ctx = clusters.With(ctx, clusters.SystemAdmin)
	var err error
	for range tries {
		if err = b.add(ctx, kube, e); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write ConfigMap %s/%s: %w", b.Namespace, Name, err)
	}
	return nil
}

func (b Book) add(ctx context.Context, kube kubernetes.Interface, e Entry) error {
	at := kube.CoreV1().ConfigMaps(b.Namespace)
	stored, err := at.Get(ctx, Name, metav1.GetOptions{})
	write := func() error { _, err := at.Update(ctx, stored, metav1.UpdateOptions{}); return err }
	if apierrors.IsNotFound(err) {
		stored = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Name}}
		write = func() error { _, err := at.Create(ctx, stored, metav1.CreateOptions{}); return err }
	} else if err != nil {
		return err
	}
	data, added := with(stored.Data, e)
	if !added {
		return nil
	}
	stored.Data, stored.BinaryData = data, nil
	return write()
}

// Read returns the entries, the oldest first, as this replica last saw them. They can be read while etcd is away.
func (b Book) Read(ctx context.Context, kube kubernetes.Interface) ([]Entry, error) {
	ctx = clusters.With(ctx, clusters.SystemAdmin)
	stored, err := kube.CoreV1().ConfigMaps(b.Namespace).Get(ctx, Name, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read ConfigMap %s/%s: %w", b.Namespace, Name, err)
	}
	return parse(stored.Data, numbers(stored.Data)), nil
}

const (
	// digits is the length of a key, highest the highest number that counts: nobody writes so many.
	digits, highest = 10, 9_000_000_000
	// longestEntry is how many bytes an entry may have.
	longestEntry = 8 << 10
)

// numbers returns the numbers of what may be entries, in their order.
func numbers(data map[string]string) []int64 {
	var out []int64
	for key, text := range data {
		number, err := strconv.ParseInt(key, 10, 64)
		if err == nil && key == keyOf(number) && number >= 1 && number <= highest && len(text) <= longestEntry {
			out = append(out, number)
		}
	}
	slices.Sort(out)
	return out
}

// parse returns the entries of some numbers. Whatever else somebody has written there is left out.
func parse(data map[string]string, numbers []int64) (out []Entry) {
	for _, number := range numbers {
		var e Entry
		if err := json.Unmarshal([]byte(data[keyOf(number)]), &e); err == nil && e.Epoch >= 1 && e.Holder != "" {
			out = append(out, e.clipped())
		}
	}
	return out
}

func keyOf(number int64) string { return fmt.Sprintf("%0*d", digits, number) }

// with returns the data with one more entry, and whether that is new. It reads only the latest entries: the others may be many.
func with(data map[string]string, e Entry) (_ map[string]string, added bool) {
	kept, next := numbers(data), int64(1)
	if n := len(kept); n > 0 && kept[n-1] < highest {
		next = kept[n-1] + 1
	} else {
		kept = nil // somebody has written the highest number: begin anew
	}
	latest := parse(data, kept[max(0, len(kept)-1-mostBefore):])
	if n := len(latest); n > 0 && same(latest[n-1].Term, e.Term) {
		return data, false
	}
	e.Before = slices.DeleteFunc(slices.Clone(e.Before), func(b status.Term) bool { return isTold(latest, b) })
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // it has only numbers, times and text
	}
	out, size := map[string]string{keyOf(next): string(text)}, len(text)
	for _, number := range slices.Backward(kept) {
		old := data[keyOf(number)]
		if size += len(old); len(out) == Most || size > mostBytes {
			break
		}
		out[keyOf(number)] = old
	}
	return out, true
}

// mostBefore is how many terms before its own an Entry has at most.
const mostBefore = 3

// isTold reports whether an entry says why a term ended.
func isTold(entries []Entry, t status.Term) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool {
		return slices.ContainsFunc(e.Before, func(b status.Term) bool { return same(b, t) && b.EndCause != "" })
	})
}
