package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"k8s.io/klog/v2"
)

const (
	// roomPeriod is the pause between two looks at how much room there is. roomReminder is the least time between
	// two log lines that there is none.
	roomPeriod   = 10 * time.Second
	roomReminder = time.Minute
)

// keepRoom looks again and again whether the database has become too large, until ctx ends. What was deleted or
// overwritten stays in it until history is compacted, and the file keeps its size until it is defragmented. etcd counts
// the file, and once that has reached the quota, it refuses writes until somebody compacts, defragments and disarms.
// Here there is nobody else to do so.
func (s *Server) keepRoom(ctx context.Context, period time.Duration) {
	var told time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
		if err := s.makeRoom(ctx); err != nil && ctx.Err() == nil && time.Since(told) >= roomReminder {
			klog.FromContext(ctx).Error(err, "The embedded etcd is full: this shard takes no writes but deletions. Delete what is not needed, or restart with a larger --embedded-etcd-quota-bytes")
			told = time.Now()
		}
	}
}

// makeRoom makes room if the database is full, or is about to be and would shrink. An error says why it is full all the
// same.
func (s *Server) makeRoom(ctx context.Context) error {
	member, log := s.etcd.Server, klog.FromContext(ctx)
	full := slices.ContainsFunc(member.Alarms(), func(a *pb.AlarmMember) bool { return a.Alarm == pb.AlarmType_NOSPACE })
	size, used := member.Backend().Size(), member.Backend().SizeInUse()
	nearly := size > s.quota/4*3 && used < size/3*2
	if !full && !nearly {
		return nil
	}
	if full {
		// Watches that have fallen behind by more than nothing begin again, with a list.
		to := &pb.CompactionRequest{Revision: member.KV().Rev(), Physical: true}
		if _, err := member.Compact(ctx, to); err != nil && !errors.Is(err, mvcc.ErrCompacted) {
			return fmt.Errorf("compact the history up to revision %d: %w", to.Revision, err)
		}
		if used = member.Backend().SizeInUse(); used >= s.quota/10*9 {
			return fmt.Errorf("%d bytes are in use without any history, of %d", used, s.quota)
		}
	}
	began := time.Now()
	if err := member.Defragment(); err != nil {
		return fmt.Errorf("defragment the database: %w", err)
	}
	if full {
		if _, err := member.Alarm(ctx, &pb.AlarmRequest{MemberID: uint64(member.MemberID()), Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}); err != nil {
			return fmt.Errorf("take writes again: %w", err)
		}
	}
	log.Info("The embedded etcd had become too large, and was compacted and defragmented: it answered nobody meanwhile",
		"wasFull", full, "bytesBefore", size, "bytes", member.Backend().Size(), "quota", s.quota, "after", time.Since(began).Round(time.Millisecond))
	return nil
}
