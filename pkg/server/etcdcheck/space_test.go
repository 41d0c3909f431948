package etcdcheck

import (
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// A full etcd answers reads. /readyz says all the same that it is full, as long as it is.
func TestAFullEtcdIsToldOf(t *testing.T) {
	client, err := storage.NewClient(storage.Config{Transport: etcdtest.Start(t), Prefix: "/registry"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	var most int64
	space := NewSpace(client.Etcd(), func(q int64) { most = q })
	for _, full := range []bool{false, true, false} {
		alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}
		if full {
			alarm.Action = pb.AlarmRequest_ACTIVATE
		}
		if _, err := pb.NewMaintenanceClient(client.Etcd().ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
			t.Fatal(err)
		}
		space.look(t.Context())
		if err := space.Check(nil); errors.Is(err, ErrFull) != full {
			t.Errorf("full: %t, and the check says %v", full, err)
		}
	}
	if most <= 0 {
		t.Errorf("a quota of %d bytes", most)
	}
}
