package storage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	upstream "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/metrics/legacyregistry"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// leases are what terms are read from in these tests: configmaps, too.
var leases = corev1.Resource("leases")

const leaseKey = "/core/leases/kube-system/l"

// shownBy is the term that such a lease shows.
func shownBy(obj runtime.Object) fence.Token {
	cm := obj.(*corev1.ConfigMap)
	epoch, err := strconv.ParseInt(cm.Data["epoch"], 10, 64)
	if err != nil {
		panic(err)
	}
	return fence.Token{
		Cluster: logicalcluster.From(cm), Namespace: cm.Namespace, Name: cm.Name,
		UID: cm.UID, Holder: cm.Data["holder"], Epoch: epoch,
	}
}

// world is an etcd with a lease and objects.
type world struct {
	t       testing.TB
	client  *storage.Client
	leases  upstream.Interface
	objects upstream.Interface
	admin   context.Context // in a cluster, without a token
	uids    int
}

// ownKey is in the contexts of the process's own requests.
type ownKey struct{}

func newWorld(t *testing.T, way storagebackend.TransportConfig, uncached bool, transformers encryptionconfig.StaticTransformers) *world {
	t.Helper()
	config := storage.Config{Transport: way, Prefix: "/registry", IsOwn: func(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }}
	if transformers != nil {
		config.Transformers = transformers
	}
	client, err := storage.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &world{
		t: t, client: client, admin: clusters.With(t.Context(), "root"),
		leases: openOver(t, client, leases, false), objects: openOver(t, client, corev1.Resource("configmaps"), uncached),
	}
}

// edit changes the lease, without a token, as others' acquisitions and edits do. A new one has a new uid.
func (w *world) edit(change func(data map[string]string)) fence.Token {
	w.t.Helper()
	out := &corev1.ConfigMap{}
	err := w.leases.GuaranteedUpdate(w.admin, leaseKey, out, true, nil, func(obj runtime.Object, _ upstream.ResponseMeta) (runtime.Object, *uint64, error) {
		cm := obj.(*corev1.ConfigMap).DeepCopy()
		if cm.Name == "" {
			w.uids++
			cm.Name, cm.Namespace, cm.UID, cm.Data = "l", "kube-system", types.UID(fmt.Sprintf("uid-%d", w.uids)), map[string]string{"epoch": "0"}
		}
		change(cm.Data)
		return cm, nil, nil
	}, nil)
	if err != nil {
		w.t.Errorf("edit the lease: %v", err)
		return fence.Token{}
	}
	return shownBy(out)
}

// take begins a term.
func (w *world) take(holder string) fence.Token {
	return w.edit(func(data map[string]string) {
		epoch, _ := strconv.Atoi(data["epoch"])
		data["holder"], data["epoch"] = holder, strconv.Itoa(epoch+1)
	})
}

func (w *world) renew() {
	w.edit(func(data map[string]string) {
		n, _ := strconv.Atoi(data["renewed"])
		data["renewed"] = strconv.Itoa(n + 1)
	})
}

func (w *world) release() { w.edit(func(data map[string]string) { data["holder"] = "" }) }

func (w *world) remove() {
	w.t.Helper()
	err := w.leases.Delete(w.admin, leaseKey, &corev1.ConfigMap{}, nil, upstream.ValidateAllObjectFunc, nil, upstream.DeleteOptions{})
	if err != nil && !upstream.IsNotFound(err) {
		w.t.Fatalf("delete the lease: %v", err)
	}
}

// as is a context of a term.
func (w *world) as(token fence.Token) context.Context { return fence.With(w.admin, token) }

// The three writes of upstream's store; all others are made of them.
func (w *world) create(ctx context.Context) error {
	return w.objects.Create(ctx, key, object(), &corev1.ConfigMap{}, 0)
}

func (w *world) update(ctx context.Context) error {
	return w.set(ctx, key, func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"at": time.Now().String()} })
}

func (w *world) set(ctx context.Context, key string, change func(*corev1.ConfigMap)) error {
	return w.objects.GuaranteedUpdate(ctx, key, &corev1.ConfigMap{}, false, nil, func(obj runtime.Object, _ upstream.ResponseMeta) (runtime.Object, *uint64, error) {
		cm := obj.(*corev1.ConfigMap).DeepCopy()
		change(cm)
		return cm, nil, nil
	}, nil)
}

func (w *world) nothing(ctx context.Context) error {
	return w.set(ctx, key, func(*corev1.ConfigMap) {})
}

func (w *world) delete(ctx context.Context) error {
	return w.objects.Delete(ctx, key, &corev1.ConfigMap{}, nil, upstream.ValidateAllObjectFunc, nil, upstream.DeleteOptions{})
}

// reset makes the object exist, or not.
func (w *world) reset(exists bool) {
	w.t.Helper()
	if err := w.delete(w.admin); err != nil && !upstream.IsNotFound(err) {
		w.t.Fatal(err)
	}
	if exists {
		if err := w.create(w.admin); err != nil {
			w.t.Fatal(err)
		}
	}
}

// stored is what etcd holds of the object: its value and revision, or nothing.
func (w *world) stored() string {
	w.t.Helper()
	resp, err := w.client.Etcd().Get(w.t.Context(), "/registry/core/configmaps/root/default/x")
	if err != nil {
		w.t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%s", resp.Kvs[0].ModRevision, resp.Kvs[0].Value)
}

// fate is what befalls a lease while its holder is paused, and whether the holder's writes are accepted then.
var fates = map[string]struct {
	befall func(w *world)
	live   bool
}{
	"nothing happens":                   {func(*world) {}, true},
	"it is renewed":                     {(*world).renew, true},
	"it is renewed again and again":     {func(w *world) { w.renew(); w.renew(); w.renew() }, true},
	"it is labelled":                    {func(w *world) { w.edit(func(d map[string]string) { d["label"] += "x" }) }, true},
	"another takes it":                  {func(w *world) { w.take("another") }, false},
	"the same takes it, in a new epoch": {func(w *world) { w.take("me") }, false},
	"another epoch":                     {func(w *world) { w.edit(func(d map[string]string) { d["epoch"] += "0" }) }, false},
	"it is released":                    {(*world).release, false},
	"it is deleted":                     {(*world).remove, false},
	"it is deleted and made again":      {func(w *world) { w.remove(); w.take("me") }, false},
	"a foreign term comes and goes":     {func(w *world) { w.take("another"); w.release(); w.take("me") }, false},
}

// I2, at the last moment: everything has been checked, and the transaction is about to be sent, when the lease changes
// hands.
func TestAWriteIsHeldToItsTermInItsTransaction(t *testing.T) {
	for layer, uncached := range map[string]bool{"cached": false, "uncached": true} {
		t.Run(layer, func(t *testing.T) {
			w := newWorld(t, etcdtest.Start(t), uncached, nil)
			befall := w.beforeNextCommit()
			for name, fate := range fates {
				t.Run(name, func(t *testing.T) { heldToItsTerm(t, w, fate.befall, fate.live, befall) })
			}
		})
	}
}

// beforeNextCommit returns where to put what is called once, when the guard is about to send a transaction.
func (w *world) beforeNextCommit() *func() {
	next := new(func())
	w.client.BeforeAnyCommit(func() {
		if once := *next; once != nil {
			*next = nil
			once()
		}
	})
	return next
}

func heldToItsTerm(t *testing.T, w *world, befall func(*world), live bool, pause *func()) {
	for op, write := range map[string]struct {
		do     func(context.Context) error
		exists bool
	}{"create": {w.create, false}, "update": {w.update, true}, "delete": {w.delete, true}} {
		for _, when := range []string{"before the request", "before the transaction"} {
			w.reset(write.exists)
			w.remove()
			ctx := w.as(w.take("me"))
			before := w.stored()
			if when == "before the request" {
				befall(w)
			} else {
				*pause = func() { befall(w) }
			}
			err := write.do(ctx)
			if *pause != nil {
				t.Fatalf("%s %s: the guard sent no transaction: %v", op, when, err)
			}
			after := w.stored()
			if live && (err != nil || after == before) {
				t.Errorf("%s, %s: %v, want it made", op, when, err)
			}
			if !live && (!fence.IsFenced(err) || after != before) {
				t.Errorf("%s, %s: %v, changed: %t; want it fenced", op, when, err, after != before)
			}
		}
	}
}

// An update that changes nothing is not sent to etcd. It is an answer to a leader all the same.
func TestAnUpdateThatChangesNothingIsHeldToItsTerm(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	w.reset(true)
	for name, fate := range fates {
		w.remove()
		ctx := w.as(w.take("me"))
		fate.befall(w)
		before := w.stored()
		if err := w.nothing(ctx); fate.live && err != nil || !fate.live && !fence.IsFenced(err) {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.client.CheckToken(ctx); fate.live && err != nil || !fate.live && !fence.IsFenced(err) {
			t.Errorf("%s, as a dry-run asks: %v", name, err)
		}
		if w.stored() != before {
			t.Errorf("%s: something was written", name)
		}
	}
}

// What stands in the way of the write itself is told as ever, and a term that is over comes first.
func TestConflictsAreTheObjects(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	w.reset(true)
	ctx := w.as(w.take("me"))
	if err := w.create(ctx); !upstream.IsExist(err) {
		t.Errorf("create what exists: %v", err)
	}
	old := upstream.Preconditions{ResourceVersion: new(string)}
	*old.ResourceVersion = "1"
	if err := w.objects.Delete(ctx, key, &corev1.ConfigMap{}, &old, upstream.ValidateAllObjectFunc, nil, upstream.DeleteOptions{}); !upstream.IsConflict(err) && !upstream.IsInvalidObj(err) {
		t.Errorf("delete another revision: %v", err)
	}
	w.reset(false)
	if err := w.delete(ctx); !upstream.IsNotFound(err) {
		t.Errorf("delete what does not exist: %v", err)
	}
	w.reset(true)
	w.take("another")
	if err := w.create(ctx); !fence.IsFenced(err) {
		t.Errorf("create what exists, in a term that is over: %v", err)
	}
	w.reset(false)
	// upstream makes a success of it when the last finalizer has gone
	if err := w.delete(ctx); !fence.IsFenced(err) {
		t.Errorf("delete what does not exist, in a term that is over: %v", err)
	}
	w.reset(true)
	// A writer that comes between is seen, and its change is kept.
	ctx = w.as(w.take("me"))
	first := true
	err := w.set(ctx, key, func(cm *corev1.ConfigMap) {
		if first {
			first = false
			if err := w.set(w.admin, key, func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"other": "kept"} }); err != nil {
				t.Fatal(err)
			}
		}
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data["mine"] = "made"
	})
	if stored := w.stored(); err != nil || !strings.Contains(stored, "kept") || !strings.Contains(stored, "made") {
		t.Errorf("%v, stored %q", err, stored)
	}
}

// Only who may get the Lease is told what it shows.
func TestARefusalTellsOnlyWhoMayGetTheLease(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	token := w.take("me")
	w.take("secret")
	var asked fence.Token
	for may, ctx := range map[bool]context.Context{
		true:  etcdfence.WithDisclosure(w.as(token), func(_ context.Context, of fence.Token) bool { asked = of; return true }),
		false: etcdfence.WithDisclosure(w.as(token), func(context.Context, fence.Token) bool { return false }),
	} {
		err := w.create(ctx)
		var status apierrors.APIStatus
		if !fence.IsFenced(err) || !errors.As(err, &status) || status.Status().Code != 412 {
			t.Fatalf("%v", err)
		}
		text := fmt.Sprint(status.Status())
		if strings.Contains(text, "secret") != may || strings.Contains(text, `held by "me" in epoch 1`) != may {
			t.Errorf("may get it: %t: %s", may, text)
		}
		if may && (asked != token || len(status.Status().Details.Causes) != 2) {
			t.Errorf("asked for %v: %v", asked, status.Status().Details)
		}
		if apierrors.IsConflict(err) {
			t.Error("clients would try again")
		}
	}
	if err := w.create(w.as(token)); !fence.IsFenced(err) || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody to ask: %v", err)
	}
}

// Renewals after every 32 changes, however long they take, by 16 writers that all change the same few objects: nothing
// is refused, and nothing lost.
func TestRenewalsDisturbNoWriter(t *testing.T) {
	const writers, changes, often = 16, 100, 32
	w := newWorld(t, etcdtest.Start(t), false, nil)
	token := w.take("me")
	retriesBefore, checkedBefore := counter(t, "regent_fencing_retries_total"), counter(t, "regent_fencing_tokens_checked_total")
	keys := [4]string{}
	for i := range keys {
		keys[i] = fmt.Sprintf("/core/configmaps/default/x-%d", i)
		made := object()
		made.Name = fmt.Sprintf("x-%d", i)
		if err := w.objects.Create(w.as(token), keys[i], made, &corev1.ConfigMap{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	changed, renewals := make(chan struct{}, writers*changes), 0
	var renewing, writing sync.WaitGroup
	renewing.Go(func() {
		n := 0
		for range changed {
			if n++; n%often == 0 {
				w.renew()
				renewals++
			}
		}
	})
	for range writers {
		writing.Go(func() {
			for n := range changes {
				err := w.set(w.as(token), keys[n%len(keys)], func(cm *corev1.ConfigMap) {
					had, _ := strconv.Atoi(cm.Data["count"])
					cm.Data = map[string]string{"count": strconv.Itoa(had + 1)}
				})
				if err != nil {
					t.Errorf("a write of the living term: %v", err)
				}
				changed <- struct{}{}
			}
		})
	}
	writing.Wait()
	close(changed)
	renewing.Wait()
	sum := 0
	for _, key := range keys {
		cm := &corev1.ConfigMap{}
		if err := w.objects.Get(w.admin, key, upstream.GetOptions{}, cm); err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(cm.Data["count"])
		sum += n
	}
	if sum != writers*changes {
		t.Errorf("%d changes are left of %d", sum, writers*changes)
	}
	retries, checked := counter(t, "regent_fencing_retries_total")-retriesBefore, counter(t, "regent_fencing_tokens_checked_total")-checkedBefore
	t.Logf("%d changes in %.0f writes, %d renewals, %.0f guard retries", sum, checked, renewals, retries)
	// Each renewal can be in the way of each writer's one write under way, and of the reads it takes to find out.
	if bound := float64(renewals * writers * 2); retries > bound || renewals == 0 {
		t.Errorf("%.0f retries in %d renewals, want at most %.0f", retries, renewals, bound)
	}
}

// Writes wait for a renewal that is under way, so as not to be tried in vain; not for one that gets nowhere.
func TestARenewalThatGetsNowhereHoldsUpNoWrite(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	token := w.take("me")
	stuck, release := make(chan struct{}), make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		once := sync.OnceFunc(func() { close(stuck) })
		w.edit(func(map[string]string) {
			once()
			<-release
		})
	})
	<-stuck
	if err := w.create(w.as(token)); err != nil {
		t.Error(err)
	}
	close(release)
	renewing.Wait()
	if err := w.update(w.as(token)); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// A lease that changes faster than a write can follow is no reason to say that the term is over, nor to try for ever.
func TestTheGuardGivesUpWithATimeout(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	ctx := w.as(w.take("me"))
	tries := 0
	w.client.BeforeCommit(func() { tries++; w.renew() })
	err := w.create(ctx)
	if !apierrors.IsTimeout(err) || fence.IsFenced(err) || tries != 20 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	if w.stored() != "" {
		t.Error("it was written")
	}
}

// Leases that are encrypted in etcd are compared as any others.
func TestEncryptedLeasesFence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	const config = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [leases, configmaps]
  providers:
  - secretbox: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	encryption, err := encryptionconfig.LoadEncryptionConfig(t.Context(), file, false, "test")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, etcdtest.Start(t), false, encryption.Transformers)
	befall := w.beforeNextCommit()
	for name, fate := range fates {
		t.Run(name, func(t *testing.T) { heldToItsTerm(t, w, fate.befall, fate.live, befall) })
	}
	resp, err := w.client.Etcd().Get(t.Context(), "/registry/core/leases/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		if !strings.HasPrefix(string(kv.Value), "k8s:enc:secretbox:") {
			t.Errorf("%s is stored as %.30q", kv.Key, kv.Value)
		}
	}
}

// Whatever happens to the lease between the steps of whatever writes, by two replicas that know of each other's writes
// only what etcd says: a write commits if and only if the lease showed its term at that moment.
func TestWritesCommitInTheirTermsOnly(t *testing.T) {
	way := etcdtest.Start(t)
	a, b := newWorld(t, way, false, nil), newWorld(t, way, true, nil)
	names := make([]string, 0, len(fates))
	for name := range fates {
		names = append(names, name)
	}
	var pause func()
	for _, w := range []*world{a, b} {
		w.client.BeforeCommit(func() {
			if pause != nil {
				pause()
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		a.remove()
		a.uids, b.uids = max(a.uids, b.uids), max(a.uids, b.uids)
		tokens := []fence.Token{a.take("me")}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			w := []*world{a, b}[rapid.IntRange(0, 1).Draw(t, "replica")]
			other := []*world{a, b}[rapid.IntRange(0, 1).Draw(t, "where it happens")]
			token := tokens[rapid.IntRange(0, len(tokens)-1).Draw(t, "term")]
			fate := rapid.SampledFrom(names).Draw(t, "fate")
			befalls := rapid.IntRange(0, 3).Draw(t, "before which transaction")
			writes := []struct {
				exists bool
				do     func(context.Context) error
			}{{false, w.create}, {true, w.update}, {true, w.delete}}
			write := writes[rapid.IntRange(0, 2).Draw(t, "write")]
			w.reset(write.exists)
			other.uids = max(a.uids, b.uids)

			show := func() fence.Token {
				cm := &corev1.ConfigMap{}
				if err := a.leases.Get(a.admin, leaseKey, upstream.GetOptions{}, cm); err != nil {
					return fence.Token{}
				}
				return shownBy(cm)
			}
			commits, atCommit := 0, fence.Token{}
			pause = func() {
				if commits == befalls && show() != (fence.Token{}) {
					fates[fate].befall(other)
				}
				commits++
				atCommit = show()
			}
			before := w.stored()
			err := write.do(w.as(token))
			pause = nil
			changed := w.stored() != before
			if commits == 0 {
				atCommit = show()
			}
			switch {
			case err == nil && (!changed || atCommit != token):
				t.Fatalf("a write of %v was made, changed %t, when the lease showed %v", token, changed, atCommit)
			case err != nil && (!fence.IsFenced(err) || changed || atCommit == token):
				t.Fatalf("a write of %v was refused, changed %t, when the lease showed %v: %v", token, changed, atCommit, err)
			}
			if shown := show(); shown.Holder != "" {
				tokens = append(tokens, shown)
			} else {
				tokens = append(tokens, other.take("me"))
			}
		}
	})
}

// counter reads a counter of this process.
func counter(t testing.TB, name string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
