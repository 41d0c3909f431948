package storage_test

import (
	"testing"

	etcdserverpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	corev1 "k8s.io/api/core/v1"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// By this a standby knows whether it could take the lease (election: takesWrites): to create what is there changes nothing, and
// needs an etcd that takes writes. A deletion does not.
func TestToCreateWhatIsThereNeedsSpaceAndChangesNothing(t *testing.T) {
	client := newClient(t, startEtcd(t))
	layers, direct := openOver(t, client, corev1.Resource("configmaps"), false), client.Etcd()
	ctx := clusters.With(t.Context(), "one")
	create := func() error { return layers.Create(ctx, key, object(), &corev1.ConfigMap{}, 0) }
	revision := func() int64 {
		t.Helper()
		got, err := direct.Get(ctx, "any")
		if err != nil {
			t.Fatal(err)
		}
		return got.Header.Revision
	}
	if err := create(); err != nil {
		t.Fatal(err)
	}

	before := revision()
	for range 10 {
		if err := create(); !upstream.IsExist(err) {
			t.Fatalf("to create it again answers %v", err)
		}
	}
	if after := revision(); after != before {
		t.Errorf("revision %d after %d", after, before)
	}

	alarm := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(direct.ActiveConnection()).Alarm(ctx, alarm); err != nil {
		t.Fatal(err)
	}
	if err := create(); err == nil || upstream.IsExist(err) {
		t.Errorf("to create it again answers %v, and etcd is out of space", err)
	}
	if err := layers.Delete(ctx, key, &corev1.ConfigMap{}, nil, upstream.ValidateAllObjectFunc, nil, upstream.DeleteOptions{}); err != nil {
		t.Errorf("a deletion needs space: %v", err)
	}
}
