package clientgo_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/regent-project/regent/pkg/election/electiontest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Verbose() {
		klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard))))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const (
	leaseName = "example"
	lease     = 15 * time.Second
	renew     = 10 * time.Second
	retry     = 2 * time.Second
	moment    = 100 * time.Millisecond
)

// getter is a LeasesGetter of one client.
type getter struct{ client *electiontest.Client }

func (g getter) Leases(string) coordinationv1client.LeaseInterface { return leases{client: g.client} }

// leases has the methods of a LeaseInterface that electors use.
type leases struct {
	coordinationv1client.LeaseInterface
	client *electiontest.Client
}

func (l leases) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	list, err := l.client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
	}
	return &list.Items[0], nil
}

func (l leases) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	return l.client.List(ctx, opts)
}

func (l leases) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return l.client.Watch(ctx, opts)
}

func (l leases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.client.Create(ctx, lease, opts)
}

func (l leases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.client.Update(ctx, lease, opts)
}

func (l leases) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return l.client.Delete(ctx, name, opts)
}

// diary records what happens, in order. It is also a recorder of Events.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// Eventf implements resourcelock.EventRecorder.
func (d *diary) Eventf(object runtime.Object, _, reason, message string, args ...any) {
	on := object.(*coordinationv1.Lease)
	d.write("event %s on %s/%s: %s", reason, on.Namespace, on.Name, fmt.Sprintf(message, args...))
}

// has reports whether there is a line that contains text.
func (d *diary) has(text string) bool {
	return slices.ContainsFunc(d.all(), func(line string) bool { return strings.Contains(line, text) })
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// newConfig returns the configuration of a replica that writes what happens into d. work is what it does when it leads;
// nil: it waits for the end of its context.
func newConfig(client *electiontest.Client, identity string, d *diary, work func(context.Context)) leaderelection.LeaderElectionConfig {
	if work == nil {
		work = func(ctx context.Context) { <-ctx.Done() }
	}
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: leaseName}, Client: getter{client},
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity, EventRecorder: d},
			Labels:     map[string]string{"app": "example"},
		},
		LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				d.write("started")
				work(ctx)
				d.write("returned")
			},
			OnStoppedLeading: func() { d.write("stopped") },
			OnNewLeader:      func(identity string) { d.write("leader %s", identity) },
		},
	}
}

// elector is what client-go's and this package's have in common.
type elector interface {
	Run(ctx context.Context)
	IsLeader() bool
	GetLeader() string
	Check(maxTolerableExpiredLease time.Duration) error
}
