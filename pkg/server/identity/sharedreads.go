package identity

import (
	"context"
	"errors"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/server/access"
)

// sharedReads lets requests that need the policy of the same logical cluster share reads of it. Of each cluster one
// read is under way, however many ask: whoever may write roles could otherwise have all of them read by each request.
//
// No request is given a read that began before it asked. Such a read may not have what was granted or, worse, revoked
// in between. So a request that comes while a read is under way waits for the next one, with all others that do:
//
//	nobody reads --asks--> running --asks--> running, and one next --running ends--> running
type sharedReads struct {
	mu            sync.Mutex
	running, next map[logicalcluster.Name]*sharedRead
}

type sharedRead struct {
	done   chan struct{} // closed when the fields below are set
	policy access.Policy
	err    error
}

// errNotRead is what others are told if the read that they wait for panics.
var errNotRead = errors.New("the read of the roles and bindings that was shared has failed: try again")

// do returns what read returns, called here or for another request that has asked for the same cluster. read must end
// by itself.
func (s *sharedReads) do(ctx context.Context, cluster logicalcluster.Name, read func() (access.Policy, error)) (access.Policy, error) {
	r, runs, after := s.enter(cluster)
	if !runs {
		select {
		case <-r.done:
			return r.policy, r.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if after != nil {
		<-after.done // not given up when ctx ends: others may wait for r by now
	}
	defer s.leave(cluster, r)
	r.policy, r.err = read()
	return r.policy, r.err
}

// enter returns the read that the caller gets. If runs is true the caller must do it, after another one that is under
// way, if there is one, and call leave.
func (s *sharedReads) enter(cluster logicalcluster.Name) (r *sharedRead, runs bool, after *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r = s.next[cluster]; r != nil {
		return r, false, nil
	}
	if s.running == nil {
		s.running, s.next = map[logicalcluster.Name]*sharedRead{}, map[logicalcluster.Name]*sharedRead{}
	}
	r = &sharedRead{done: make(chan struct{}), err: errNotRead}
	if after = s.running[cluster]; after != nil {
		s.next[cluster] = r
	} else {
		s.running[cluster] = r
	}
	return r, true, after
}

// leave ends a read, and makes the next one the one that runs. A request that asks from now on gets the one behind
// that.
func (s *sharedReads) leave(cluster logicalcluster.Name, r *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := s.next[cluster]; next != nil {
		s.running[cluster] = next
		delete(s.next, cluster)
	} else {
		delete(s.running, cluster)
	}
	close(r.done)
}
