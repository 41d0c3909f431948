package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/regent-project/regent/pkg/server/status"
)

var (
	book  = Book{Namespace: metav1.NamespaceSystem}
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// entry is that of a term of which each lasts a minute, and says how the one before ended.
func entry(epoch int64) Entry {
	began := func(epoch int64) time.Time { return start.Add(time.Duration(epoch) * time.Minute) }
	e := Entry{Term: status.Term{Epoch: epoch, Holder: fmt.Sprintf("holder-%d", epoch), Replica: "host_1234abcd", Began: began(epoch), Trigger: "death", Phases: map[string]float64{
		"detect": 0.01, "break": 0.01, "acquire": 0.01, "caches": 0.01, "first_reconcile": 0.01, "first_write": 0.01,
	}}}
	if epoch > 1 {
		e.Before = []status.Term{{Epoch: epoch - 1, Holder: fmt.Sprintf("holder-%d", epoch-1), Began: began(epoch - 1), Ended: began(epoch), EndCause: "death", EndReason: strings.Repeat("x", longest)}}
	}
	return e
}

func (b Book) mustRead(t *testing.T, kube *fake.Clientset) []Entry {
	t.Helper()
	entries, err := b.Read(t.Context(), kube)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// add adds an entry as Book does.
func (p pages) add(e Entry) (added bool) {
	slot, page, added := p.with(e)
	if added {
		p[slot] = page
	}
	return added
}

// objects returns the ConfigMaps.
func (p pages) objects() (out []runtime.Object) {
	for slot, data := range p {
		out = append(out, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: nameOf(slot), Namespace: book.Namespace, Labels: map[string]string{Label: Name}}, Data: data})
	}
	return out
}

func TestAThousandTermsStayBounded(t *testing.T) {
	const all, byWrites = 1000, 2 * perPage
	before := pages{}
	for epoch := int64(1); epoch <= all-byWrites; epoch++ {
		before.add(entry(epoch))
	}
	kube := fake.NewClientset(before.objects()...)
	for epoch := int64(all - byWrites + 1); epoch <= all; epoch++ {
		for range 2 { // the second time it is there already
			if err := book.Add(t.Context(), kube, entry(epoch)); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries := book.mustRead(t, kube)
	if len(entries) != Most || entries[0].Epoch != all-Most+1 || entries[Most-1].Epoch != all {
		t.Errorf("%d entries, from %d to %d", len(entries), entries[0].Epoch, entries[len(entries)-1].Epoch)
	}
	stored, err := kube.CoreV1().ConfigMaps(book.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(stored.Items) != slots {
		t.Fatalf("%d ConfigMaps, %v", len(stored.Items), err)
	}
	for _, cm := range stored.Items {
		if size := cm.Size(); size > mostBytes || len(cm.Data) > perPage {
			t.Errorf("the %d entries of %s take %d bytes", len(cm.Data), cm.Name, size)
		}
	}
	writes := 0
	for _, action := range kube.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" {
			writes++
		}
	}
	if writes != byWrites {
		t.Errorf("%d writes for %d terms", writes, byWrites)
	}
	told := Terms(entries, Entry{})
	if len(told) != Most || told[0].Epoch != all || told[Most-1].Epoch != all-Most+1 || told[0].EndCause != "" || told[1].EndCause != "death" {
		t.Errorf("%d terms are told, from %+v to %+v", len(told), told[0], told[len(told)-1])
	}
}

// What is larger than it may be goes to the next page. So the oldest goes sooner.
func TestLongEntriesPushOutMore(t *testing.T) {
	full := pages{}
	for epoch := int64(2); epoch <= 500; epoch++ {
		e := entry(epoch)
		e.Before[0].EndReason = strings.Repeat("\x01", 900) // is longer in JSON
		full.add(e)
	}
	for slot, data := range full {
		size := 0
		for _, text := range data {
			size += len(text)
		}
		if size > mostBytes || len(data) < 1 {
			t.Errorf("slot %d has %d entries of %d bytes", slot, len(data), size)
		}
	}
	entries := full.entries()
	if n := len(entries); n < 2*(slots-2) || entries[n-1].Epoch != 500 || entries[0].Epoch != 500-int64(n)+1 {
		t.Errorf("%d entries", n)
	}
}

// The Lease, which others may edit, can have names that are much longer in JSON.
func TestATermIsToldOfHoweverOddTheLeaseIs(t *testing.T) {
	odd := strings.Repeat("<", longest)
	p := pages{}
	p.add(entry(1))
	e := entry(5)
	e.Holder, e.Replica = odd, odd
	e.Before = slices.Repeat([]status.Term{{Epoch: 4, Holder: odd, Replica: odd, EndCause: odd, EndReason: odd}}, mostBefore)
	p.add(e)
	p.add(entry(6))
	if known := p.entries(); len(known) != 3 || known[1].Epoch != 5 || known[1].Holder != odd || known[2].Epoch != 6 {
		t.Errorf("%d entries: %v", len(known), known)
	}
}

func TestWhatIsNoEntryIsLeftOut(t *testing.T) {
	p := pages{}
	p.add(entry(1))
	p.add(entry(2))
	good := p[0][keyOf(1)]
	for key, text := range map[string]string{
		"0000000003": "{", "0000000004": `{"epoch": 0, "holder": "x"}`, "0000000005": `{"epoch": 1}`, "5": good, "-000000001": good,
		"9999999999": good, "x": "y", "0000000006": "null", keyOf(perPage + 1): good, // of another page
	} {
		p[0][key] = text
	}
	if known := p.entries(); len(known) != 2 {
		t.Errorf("%d entries, want 2: %v", len(known), known)
	}
	p[0]["0000000008"] = strings.Repeat("x", longestEntry+1)
	p.add(entry(3))
	known := p.entries()
	if len(known) != 3 || known[2].Epoch != 3 || p[0]["x"]+p[0]["5"]+p[0]["0000000008"]+p[0][keyOf(perPage+1)] != "" {
		t.Errorf("after the next write: %v", p)
	}
	p[slotOf(highest)] = map[string]string{keyOf(highest): "{}"}
	for epoch := int64(4); epoch < 6; epoch++ {
		p.add(entry(epoch))
	}
	if known = p.entries(); len(known) != 5 || known[4].Epoch != 5 || p[slotOf(highest)][keyOf(highest)] != "" {
		t.Errorf("after somebody has written the highest number: %v", p)
	}
}

// I15: what a newer version adds to an entry is ignored, and stays where it is. An entry of another shape is none.
func TestEntriesOfANewerVersionAreToldI15(t *testing.T) {
	p := pages{}
	p.add(entry(1))
	const newer = `{"epoch":2,"holder":"h","later":{"a":[1]},"trigger":"later","before":[{"epoch":1,"later":true}]}`
	p[0][keyOf(2)], p[0][keyOf(3)] = newer, `{"epoch":"3","holder":"h"}`
	p.add(entry(4))
	known := p.entries()
	if len(known) != 3 || known[1].Epoch != 2 || known[1].Trigger != "later" || known[2].Epoch != 4 {
		t.Errorf("%d entries: %v", len(known), known)
	}
	if p[0][keyOf(2)] != newer {
		t.Errorf("it is written as %s", p[0][keyOf(2)])
	}
}

// Epochs begin again when the Lease was deleted. The order of the writes counts.
func TestEntriesAreInTheOrderOfTheirWrites(t *testing.T) {
	p, want := pages{}, []int64{}
	for _, begin := range []int64{7, 1} {
		for epoch := begin; epoch < begin+perPage+2; epoch++ {
			p.add(entry(epoch))
			want = append(want, epoch)
		}
	}
	var got []int64
	for _, e := range p.entries() {
		got = append(got, e.Epoch)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the entries are %v", got)
	}
}

// A leader may have seen less than was written. It adds to what is there.
func TestALeaderThatSawLessAddsToWhatIsThere(t *testing.T) {
	for _, unseen := range []int64{0, 1, perPage - 1, perPage, perPage + 1, 3 * perPage, Most + perPage} {
		old, now := pages{}, pages{}
		const known = 5
		for epoch := int64(1); epoch <= known+unseen; epoch++ {
			if epoch <= known {
				old.add(entry(epoch))
			}
			now.add(entry(epoch))
		}
		kube := fake.NewClientset(now.objects()...)
		kube.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			list := &corev1.ConfigMapList{}
			for _, o := range old.objects() {
				list.Items = append(list.Items, *o.(*corev1.ConfigMap))
			}
			return true, list, nil
		})
		if err := book.Add(t.Context(), kube, entry(known+unseen+1)); err != nil {
			t.Fatal(err)
		}
		kube.ReactionChain = kube.ReactionChain[1:]
		entries := book.mustRead(t, kube)
		if n := len(entries); n != int(min(known+unseen+1, Most)) || entries[n-1].Epoch != known+unseen+1 || entries[0].Epoch != entries[n-1].Epoch-int64(n)+1 {
			t.Errorf("of %d unseen: %d entries, from %d to %d", unseen, n, entries[0].Epoch, entries[n-1].Epoch)
		}
	}
}

func TestAWriteIsTriedAgainAfterAConflictOnly(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("configmaps"), Name, errors.New("somebody was faster"))
	for name, test := range map[string]struct {
		faults []error
		writes int
		fails  bool
	}{
		"all is well":     {nil, 1, false},
		"a conflict":      {[]error{conflict}, 2, false},
		"many conflicts":  {[]error{conflict, conflict, conflict, conflict}, 5, false},
		"only conflicts":  {slices.Repeat([]error{conflict}, tries), tries, true},
		"etcd is full":    {[]error{errors.New("no space")}, 1, true},
		"it was deleted":  {[]error{apierrors.NewNotFound(corev1.Resource("configmaps"), Name)}, 1, true},
		"it is there now": {[]error{apierrors.NewAlreadyExists(corev1.Resource("configmaps"), Name)}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			kube, writes := fake.NewClientset(), 0
			kube.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				if writes++; writes <= len(test.faults) {
					return true, nil, test.faults[writes-1]
				}
				return false, nil, nil
			})
			err := book.Add(t.Context(), kube, entry(1))
			if writes != test.writes || (err != nil) != test.fails {
				t.Errorf("%d writes: %v", writes, err)
			}
		})
	}
}

func TestWithoutARecordNothingIsRead(t *testing.T) {
	kube := fake.NewClientset()
	if got := book.mustRead(t, kube); len(got) != 0 {
		t.Errorf("%v", got)
	}
	kube.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, context.DeadlineExceeded })
	if _, err := book.Read(t.Context(), kube); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "kube-system/regent-terms") {
		t.Errorf("%v", err)
	}
}
