package storage_test

import (
	"strings"
	"testing"

	etcdserverpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/etcdtest"
)

// By this a standby knows whether it could take the lease (election: takesWrites): to create what is there changes
// nothing, and needs an etcd that takes writes. A deletion does not.
func TestToCreateWhatIsThereNeedsSpaceAndChangesNothing(t *testing.T) {
	client := newClient(t, etcdtest.Start(t))
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

// etcd takes 1.5 MiB, and its client sends 2.
func TestWhatIsTooLargeForEtcdIsAnsweredClearly(t *testing.T) {
	layers := openOver(t, newClient(t, etcdtest.Start(t)), corev1.Resource("configmaps"), false)
	ctx := clusters.With(t.Context(), "one")
	for _, size := range []int{1700 << 10, 3 << 20} {
		large := object()
		large.Data = map[string]string{"a": strings.Repeat("x", size)}
		err := layers.Create(ctx, key, large, &corev1.ConfigMap{}, 0)
		if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "make it smaller") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
