package etcdcheck

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/test/etcdtest"
)

// formatted is the record of a shard whose format is under test.
type formatted struct {
	testing.TB
	client *clientv3.Client
	cfg    Config
	keys   *pki.Bundle
}

func newFormatted(t *testing.T) *formatted {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "pki")
	keys, err := pki.Ensure(directory)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Shard: "root", Prefix: "/registry", Directory: directory, Secrets: identity.NewEncryptCheckTransformer(), Formats: format.Formats{Version: "v0.2.0", Oldest: 1, Newest: 2, Since: "v0.2.0"}}
	return &formatted{t, etcdtest.Client(t, etcdtest.Start(t)), cfg, keys}
}

// replica returns the check of a replica of a version.
func (f *formatted) replica(of format.Formats) *Shard {
	cfg := f.cfg
	cfg.Formats = of
	return NewShard(f.client, cfg, f.keys)
}

func (f *formatted) stored() string {
	f.Helper()
	resp, err := f.client.Get(f.Context(), shardKey(f.cfg.Prefix))
	if err != nil || len(resp.Kvs) != 1 {
		f.Fatal(err)
	}
	return string(resp.Kvs[0].Value)
}

func (f *formatted) store(record string) {
	f.Helper()
	if _, err := f.client.Put(f.Context(), shardKey(f.cfg.Prefix), record); err != nil {
		f.Fatal(err)
	}
}

// with returns the record that is stored, with other words in it.
func (f *formatted) with(old, other string) string {
	f.Helper()
	record := f.stored()
	if !strings.Contains(record, old) {
		f.Fatalf("%s has no %s", record, old)
	}
	return strings.Replace(record, old, other, 1)
}

// I15: whoever would misread what is stored refuses, changes nothing, and is never ready.
func TestAReplicaRefusesAShardInAFormatThatItDoesNotReadI15(t *testing.T) {
	f := newFormatted(t)
	if err := f.replica(f.cfg.Formats).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := f.stored()
	if !strings.Contains(began, `"format":2`) || !strings.Contains(began, `"readable-from":"v0.2.0"`) {
		t.Errorf("an empty shard begins with %s", began)
	}
	old := f.replica(format.Formats{Version: "v0.1.0", Oldest: 1, Newest: 1, Since: "v0.1.0"})
	err := old.Run(t.Context())
	if !errors.Is(err, format.ErrUnreadable) || errors.Is(err, ErrOtherShard) || !strings.Contains(err.Error(), "v0.2.0") {
		t.Errorf("an older version: %v", err)
	}
	if old.Check(nil) == nil {
		t.Error("it is ready")
	}
	if now := f.stored(); now != began {
		t.Errorf("it made %s of %s", now, began)
	}
	f.store(f.with(`,"format":2,"readable-from":"v0.2.0"`, ""))
	for name, version := range map[string]format.Formats{"the old version": old.formats, "the new version": f.cfg.Formats} {
		if err := f.replica(version).Run(t.Context()); err != nil {
			t.Errorf("a record from before there were formats, %s: %v", name, err)
		}
	}
}

// I15: a replica that runs ends when the shard goes on to a format that it does not read, whatever the watch went
// through, and not for anything else that happens to the record.
func TestAReplicaEndsWhenTheShardGoesOnToAFormatThatItDoesNotReadI15(t *testing.T) {
	f := newFormatted(t)
	r := f.replica(f.cfg.Formats)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- r.KeepReadable(ctx) }()

	for _, harmless := range []string{
		f.with(`"format":2`, `"format":1`),
		f.with(`"format":2`, `"format":2,"later":{"a":["b"]}`),
		"nonsense",
		f.stored(),
	} {
		f.store(harmless)
	}
	if _, err := f.client.Delete(t.Context(), shardKey(f.cfg.Prefix)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it has ended: %v", err)
	default:
	}
	f.store(`{"format":3,"readable-from":"v0.3.0","shard":["of","another","shape"]}`)
	if err := <-ended; !errors.Is(err, format.ErrUnreadable) || !strings.Contains(err.Error(), "v0.3.0") {
		t.Errorf("it has ended with %v", err)
	}

	// One that begins to watch later sees it, too, and one that is asked to end does.
	if err := r.KeepReadable(ctx); !errors.Is(err, format.ErrUnreadable) {
		t.Errorf("one that comes later: %v", err)
	}
	f.store(`{"format":2}`)
	go func() { ended <- r.KeepReadable(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("one that is asked to end: %v", err)
	}
}

// What newer versions have added to the record outlives an older one that changes it.
func TestARollOfTheAuthorityKeepsWhatElseIsInTheRecord(t *testing.T) {
	f := newFormatted(t)
	if err := f.replica(f.cfg.Formats).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.store(f.with(`"format":2`, `"format":2,"later":{"a":["b"]}`))
	before := f.keys.Identity()
	for _, step := range []pki.Step{pki.Begin, pki.Switch} {
		if err := pki.Roll(f.cfg.Directory, "", step); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if f.keys, err = pki.Read(f.cfg.Directory); err != nil {
		t.Fatal(err)
	}
	if err := f.replica(f.cfg.Formats).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := f.stored()
	for _, text := range []string{`"later":{"a":["b"]}`, `"format":2`, `"readable-from":"v0.2.0"`, `"shard":"root"`, f.keys.Identity()} {
		if !strings.Contains(now, text) {
			t.Errorf("%s has no %s", now, text)
		}
	}
	if strings.Contains(now, before) {
		t.Errorf("%s names the old authority", now)
	}
}

// I15: whoever has upgraded all replicas has the shard go on. Replicas that read the format go on with it, and those
// that do not end.
func TestAShardGoesOnToAFormatAndReplicasThatDoNotReadItEndI15(t *testing.T) {
	f := newFormatted(t)
	old := f.replica(format.Formats{Version: "v0.1.0", Oldest: 1, Newest: 1, Since: "v0.1.0"})
	fresh := f.replica(f.cfg.Formats)
	for _, one := range []*Shard{old, fresh} {
		if err := one.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.store(f.with(`"format":1`, `"of-a-later-version":true,"format":1`))
	if reads, stored := fresh.Formats(); reads.Newest != 2 || stored.Format != 1 || stored.ReadableFrom != "v0.1.0" {
		t.Errorf("it reads %+v, and %+v is stored", reads, stored)
	}
	ended := make(chan error, 1)
	go func() { ended <- old.KeepReadable(t.Context()) }()
	if err := old.Raise(t.Context(), 2); !errors.Is(err, ErrNotReadHere) {
		t.Errorf("one that does not read it raises it: %v", err)
	}
	for range 2 { // the second time nothing is to be done
		if err := fresh.Raise(t.Context(), 2); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; !errors.Is(err, format.ErrUnreadable) {
		t.Errorf("one that does not read it goes on: %v", err)
	}
	if _, stored := fresh.Formats(); stored.Format != 2 || stored.ReadableFrom != "v0.2.0" {
		t.Errorf("%+v is stored", stored)
	}
	if record := f.stored(); !strings.Contains(record, `"of-a-later-version":true`) {
		t.Errorf("what other versions know is lost: %s", record)
	}
	if err := f.replica(f.cfg.Formats).Run(t.Context()); err != nil {
		t.Errorf("one that reads it does not begin: %v", err)
	}
}
