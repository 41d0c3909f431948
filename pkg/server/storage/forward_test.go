package storage_test

import (
	"context"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/server/storage"
)

// streams sends chunks as etcd's client does: it waits until somebody takes each, whatever becomes of ctx, and ends
// with an error once that has ended.
type streams struct {
	clientv3.KV
	ended chan struct{}
}

func (s *streams) GetStream(ctx context.Context, _ string, _ ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	chunks := make(chan clientv3.RangeStreamResponse, 1)
	go func() {
		defer close(s.ended)
		defer close(chunks)
		for ctx.Err() == nil {
			chunks <- clientv3.RangeStreamResponse{RangeResponse: &etcdserverpb.RangeResponse{}}
		}
		chunks <- clientv3.RangeStreamResponse{}
	}()
	return chunks, nil
}

// A client asks for a large list, and goes before it has it. Otherwise each such request would keep a part of the list
// in memory for ever.
func TestAListThatIsAbandonedLeavesNothing(t *testing.T) {
	for name, taken := range map[string]int{"before its first chunk": 0, "after some": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &streams{ended: make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				chunks, err := storage.NewStreams(s).GetStream(ctx, "/registry/")
				if err != nil {
					t.Fatal(err)
				}
				for range taken {
					<-chunks
				}
				synctest.Wait()
				cancel()
				synctest.Wait()
				select {
				case <-s.ended:
				default:
					t.Error("etcd's client still waits for somebody who takes the next chunk")
					for range chunks {
					}
				}
			})
		})
	}
}
