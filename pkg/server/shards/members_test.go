package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/server/pki"
)

// player plays what reads members, and writes down what becomes of it.
type player struct {
	mu     sync.Mutex
	events []string
	fault  error // of open and Move
	moves  bool  // whether there is a Move
	lasts  time.Duration
}

func (p *player) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, fmt.Sprintf(format, args...))
}

// was returns what has happened since it was last called.
func (p *player) was() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.events
	p.events = nil
	return out
}

func (p *player) open(m Member) (Follower, error) {
	p.note("open %s at %s", m.Name, m.URLs)
	out := Follower{
		Run: func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(p.lasts)
			p.note("%s ends", m.Name)
		},
		Forget: func() { p.note("forget %s", m.Name) },
	}
	if p.moves {
		out.Move = func(urls []string) error {
			p.note("move %s to %s", m.Name, urls)
			return p.fault
		}
	}
	return out, p.fault
}

// members returns members by name, each as name=url or name=url/authority.
func members(all ...string) map[string]Member {
	out := map[string]Member{}
	for _, one := range all {
		name, at, _ := strings.Cut(one, "=")
		url, authority, _ := strings.Cut(at, "/")
		out[name] = Member{name, []string{url}, authority}
	}
	return out
}

func TestMembersAreReadWhileTheyAreWanted(t *testing.T) {
	for _, moves := range []bool{false, true} {
		t.Run(fmt.Sprintf("moves %t", moves), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &player{moves: moves, lasts: time.Second}
				m := NewMembers(p.open)
				moved := []string{"a ends", "forget a", "open a at [2]"}
				if moves {
					moved = []string{"move a to [2]"}
				}
				for _, step := range []struct {
					what  string
					want  map[string]Member
					takes time.Duration
					see   []string
				}{
					{"two", members("b=1", "a=1"), 0, []string{"open a at [1]", "open b at [1]"}},
					{"the same", members("a=1", "b=1"), 0, nil},
					{"one is at another URL", members("a=2", "b=1"), time.Duration(len(moved)/3) * time.Second, moved},
					{"that stays", members("a=2", "b=1"), 0, nil},
					{"one has another authority", members("a=2/x", "b=1"), time.Second, []string{"a ends", "forget a", "open a at [2]"}},
					{"another URL and authority", members("a=3/y", "b=1"), time.Second, []string{"a ends", "forget a", "open a at [3]"}},
					{"one goes and one comes", members("a=3/y", "c=1"), time.Second, []string{"b ends", "forget b", "open c at [1]"}},
				} {
					began := time.Now()
					if again := m.Keep(t.Context(), step.want); again != nil {
						t.Errorf("%s: it is to be tried again", step.what)
					}
					synctest.Wait()
					if got := p.was(); !slices.Equal(got, step.see) || time.Since(began) != step.takes {
						t.Errorf("%s: %q within %v, want %q within %v", step.what, got, time.Since(began), step.see, step.takes)
					}
				}
				for name, end := range map[string]func(){
					"none is wanted": func() { m.Keep(t.Context(), nil) },
					"the end":        m.Close,
				} {
					m.Keep(t.Context(), members("a=1", "b=1", "c=1", "d=1"))
					p.was()
					began := time.Now()
					end()
					got := p.was()
					if took := time.Since(began); took != time.Second {
						t.Errorf("%s: four that end within a second end within %v: %q", name, took, got)
					}
					want := []string{"a ends", "b ends", "c ends", "d ends"}
					// at the end there is no time to forget, and no need
					if name == "none is wanted" {
						want = append(want, "forget a", "forget b", "forget c", "forget d")
					}
					slices.Sort(got)
					slices.Sort(want)
					if !slices.Equal(got, want) {
						t.Errorf("%s: %q, want %q", name, got, want)
					}
				}
			})
		})
	}
}

func TestAMemberThatCannotBeSetUpIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		before, after map[string]Member
		attempt       string
	}{
		"one that comes": {nil, members("a=1"), "open a at [1]"},
		"one that moves": {members("a=1"), members("a=2"), "move a to [2]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &player{moves: true}
				m := NewMembers(p.open)
				defer m.Close()
				var logged []string
				ctx := klog.NewContext(t.Context(), funcr.New(func(_, text string) { logged = append(logged, text) }, funcr.Options{}))
				m.Keep(ctx, c.before)
				p.was()
				p.fault = errors.New("no key yet")
				for range 10 {
					began := time.Now()
					again := m.Keep(ctx, c.after)
					if again == nil {
						t.Fatal("it is not to be tried again")
					}
					<-again
					if waited := time.Since(began); waited < retryPeriod || waited > 2*retryPeriod {
						t.Errorf("it is tried again after %v", waited)
					}
					if got := p.was(); !slices.Equal(got, []string{c.attempt}) {
						t.Errorf("%q, want %s", got, c.attempt)
					}
				}
				if len(logged) != 1 || !strings.Contains(logged[0], "no key yet") || !strings.Contains(logged[0], "tried again") {
					t.Errorf("of ten attempts was logged: %q", logged)
				}
				p.fault = nil
				if again := m.Keep(ctx, c.after); again != nil || !slices.Equal(p.was(), []string{c.attempt}) {
					t.Error("it is not read once it can be")
				}
				if again := m.Keep(ctx, c.after); again != nil || p.was() != nil {
					t.Error("it is set up twice")
				}
			})
		})
	}
}

// Nothing else tells a shard that its keys have come.
func TestAShardReadsAnotherOneOnceItHasKeys(t *testing.T) {
	i := newInstallation(t)
	eu1, keys := i.authority(shardNamed("us1")), i.keys("us1") // made here: it takes its time
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := New(Config{
			Own: "us1", Root: pki.RootShard{Name: "root", URLs: []string{i.down().url}}, Members: controllertest.Informer(t, controllertest.NewSource[*corev1alpha1.Shard](), nil),
			Keys: func() ([]byte, *pki.Authority) {
				if time.Since(began) < 10*time.Second {
					return nil, eu1
				}
				return keys()
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { _ = r.Run(ctx) })
		synctest.Wait()
		if _, err := r.peer("root"); err == nil {
			t.Error("it is read without keys")
		}
		time.Sleep(2 * retryPeriod)
		synctest.Wait()
		if _, err := r.peer("root"); err != nil {
			t.Error(err)
		}
	})
}
