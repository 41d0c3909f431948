package shards

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Member is a shard of the installation, as its Shard object says that it is.
type Member struct {
	Name string
	URLs []string
	// Authority is the fingerprint of the shard's authority. Empty: any of that name, signed by the installation's.
	Authority string
}

// Follower reads one member.
type Follower struct {
	// Run reads until ctx ends, and returns when all reading has ended.
	Run func(ctx context.Context)
	// Move makes Run read at other URLs. An error has changed nothing. Nil: the member is opened anew.
	Move func(urls []string) error
	// Forget is called after Run if the shard is no member any more, or is opened anew. Nil: there is nothing to
	// forget.
	Forget func()
}

// Members reads each member of the installation as long as it is one. Make it with NewMembers. It is for one goroutine.
type Members struct {
	open func(Member) (Follower, error)
	now  map[string]*entry
	// faults are why members are not read, or not where they are now, as it was logged.
	faults map[string]string
}

// entry is a member that is read.
type entry struct {
	Follower
	Member
	stop  context.CancelFunc
	ended chan struct{}
}

// NewMembers returns Members of which none is read. open makes what reads one.
func NewMembers(open func(Member) (Follower, error)) *Members {
	return &Members{open: open, now: map[string]*entry{}, faults: map[string]string{}}
}

// retryPeriod is how long a member that cannot be set up waits at least for the next attempt; at most twice as long.
// Its Shard object may be good, and the fault with the keys of this process.
const retryPeriod = 15 * time.Second

// Keep reads the wanted members, and no others. Those that are not wanted any more, or that are others now, have ended
// when it returns. again gets a value when Keep should be called again, because some could not be set up; nil: all
// were.
func (m *Members) Keep(ctx context.Context, all map[string]Member) (again <-chan time.Time) {
	m.end(func(one *entry) bool {
		now, ok := all[one.Name]
		return !ok || now.Authority != one.Authority || one.Move == nil && !slices.Equal(now.URLs, one.URLs)
	}, true)
	fails := false
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fails = !m.keep(ctx, all[name]) || fails
	}
	maps.DeleteFunc(m.faults, func(name, _ string) bool { _, ok := all[name]; return !ok })
	if fails {
		return time.After(wait.Jitter(retryPeriod, 1))
	}
	return nil
}

// keep reads a member where it is, and reports whether that works.
func (m *Members) keep(ctx context.Context, member Member) bool {
	one := m.now[member.Name]
	var err error
	switch {
	case one == nil:
		err = m.start(ctx, member)
	case !slices.Equal(member.URLs, one.URLs):
		if err = one.Move(member.URLs); err == nil {
			one.Member = member
		}
	}
	if err == nil {
		delete(m.faults, member.Name)
		return true
	}
	if text := err.Error(); m.faults[member.Name] != text {
		m.faults[member.Name] = text
		klog.FromContext(ctx).Error(err, "A shard cannot be read where it is now: this is tried again within half a minute", "peer", member.Name)
	}
	return false
}

func (m *Members) start(ctx context.Context, member Member) error {
	follower, err := m.open(member)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).WithValues("peer", member.Name)))
	one := &entry{Follower: follower, Member: member, stop: stop, ended: make(chan struct{})}
	m.now[member.Name] = one
	go func() {
		defer close(one.ended)
		one.Run(ctx)
	}()
	return nil
}

// Close ends all reading. It returns when all has ended.
func (m *Members) Close() { m.end(func(*entry) bool { return true }, false) }

// end ends the reading of those that ends names, all at the same time, and perhaps has them forgotten.
func (m *Members) end(ends func(*entry) bool, forget bool) {
	var ending sync.WaitGroup
	defer ending.Wait()
	for name, one := range m.now {
		if !ends(one) {
			continue
		}
		delete(m.now, name)
		one.stop()
		ending.Go(func() {
			<-one.ended
			if forget && one.Forget != nil {
				one.Forget()
			}
		})
	}
}
