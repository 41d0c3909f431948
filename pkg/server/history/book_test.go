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

func TestAThousandTermsStayBounded(t *testing.T) {
	const all, byWrites = 1000, 10
	var data map[string]string
	for epoch := int64(1); epoch <= all-byWrites; epoch++ {
		data, _ = with(data, entry(epoch))
	}
	kube := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: book.Namespace}, Data: data})
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
	stored, err := kube.CoreV1().ConfigMaps(book.Namespace).Get(t.Context(), Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if size := stored.Size(); size > mostBytes+8<<10 {
		t.Errorf("they take %d bytes", size)
	} else {
		t.Logf("%d entries take %d bytes", len(entries), size)
	}
	writes := 0
	for _, action := range kube.Actions() {
		if action.GetVerb() != "get" {
			writes++
		}
	}
	if writes != byWrites {
		t.Errorf("%d writes for %d terms", writes, byWrites)
	}
	told := Told(entries, Entry{})
	if len(told) != Most || told[0].Epoch != all || told[Most-1].Epoch != all-Most+1 || told[0].EndCause != "" || told[1].EndCause != "death" {
		t.Errorf("%d terms are told, from %+v to %+v", len(told), told[0], told[len(told)-1])
	}
}

// What is larger than it may be goes, the oldest first.
func TestLongEntriesPushOutMore(t *testing.T) {
	var data map[string]string
	for epoch := int64(2); epoch <= 300; epoch++ {
		e := entry(epoch)
		e.Before[0].EndReason = strings.Repeat("\x01", 900) // is longer in JSON
		data, _ = with(data, e)
	}
	size := 0
	for _, text := range data {
		size += len(text)
	}
	if size > mostBytes || len(data) < 30 {
		t.Errorf("%d entries of %d bytes", len(data), size)
	}
	if known := parse(data, numbers(data)); len(known) != len(data) {
		t.Errorf("%d of %d entries can be read", len(known), len(data))
	}
}

func TestWhatIsNoEntryIsLeftOut(t *testing.T) {
	data, _ := with(nil, entry(1))
	data, _ = with(data, entry(2))
	good := len(data)
	for key, text := range map[string]string{
		"0000000003": "{", "0000000004": `{"epoch": 0, "holder": "x"}`, "0000000005": `{"epoch": 1}`, "5": data[keyOf(1)], "-000000001": data[keyOf(1)],
		"9999999999": data[keyOf(1)], "x": "y", "0000000006": "null",
	} {
		data[key] = text
	}
	if known := parse(data, numbers(data)); len(known) != good {
		t.Errorf("%d entries, want %d: %v", len(known), good, known)
	}
	data["0000000008"] = strings.Repeat("x", longestEntry+1)
	data, _ = with(data, entry(3))
	known := parse(data, numbers(data))
	if len(known) != good+1 || known[good].Epoch != 3 || data["x"]+data["5"]+data["0000000008"] != "" {
		t.Errorf("after the next write: %v", data)
	}
	data[keyOf(highest)] = "{}"
	for epoch := int64(4); epoch < 6; epoch++ {
		data, _ = with(data, entry(epoch))
	}
	if known := parse(data, numbers(data)); len(known) != 2 || known[1].Epoch != 5 {
		t.Errorf("after somebody has written the highest number: %v", data)
	}
}

// Epochs begin again when the Lease was deleted. The order of the writes counts.
func TestEntriesAreInTheOrderOfTheirWrites(t *testing.T) {
	var data map[string]string
	for _, epoch := range []int64{7, 8, 1, 2} {
		data, _ = with(data, entry(epoch))
	}
	var got []int64
	for _, e := range parse(data, numbers(data)) {
		got = append(got, e.Epoch)
	}
	if !slices.Equal(got, []int64{7, 8, 1, 2}) {
		t.Errorf("the entries are %v", got)
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
		"only conflicts":  {[]error{conflict, conflict, conflict, conflict}, tries, true},
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
	kube.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, context.DeadlineExceeded })
	if _, err := book.Read(t.Context(), kube); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "kube-system/regent-terms") {
		t.Errorf("%v", err)
	}
}
