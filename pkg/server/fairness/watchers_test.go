package fairness

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// A write keeps its place for as long as its watchers are told of it. The writer does not wait for that.
func TestAWriteKeepsItsPlaceWhileItsWatchersAreTold(t *testing.T) {
	const open = 500
	for _, c := range []struct {
		name, cluster string
		info          request.RequestInfo
		want          time.Duration
	}{
		{"a write", "a", request.RequestInfo{Verb: "create", Resource: "configmaps"}, open * perWatcher},
		{"a write in a namespace", "a", request.RequestInfo{Verb: "patch", Resource: "configmaps", Namespace: "n", Name: "x"}, open * perWatcher},
		{"a read", "a", request.RequestInfo{Verb: "get", Resource: "configmaps", Name: "x"}, 0},
		{"a write of another resource", "a", request.RequestInfo{Verb: "create", Resource: "secrets"}, 0},
		{"a write of another group", "a", request.RequestInfo{Verb: "create", APIGroup: "x", Resource: "configmaps"}, 0},
		{"a write in another cluster", "b", request.RequestInfo{Verb: "create", Resource: "configmaps"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				control := &Control{
					Limiter: New(12, 100),
					Flow:    func(context.Context, flowcontrol.RequestDigest) Flow { return Flow{Tenant: c.cluster} },
					Cost:    func(context.Context, flowcontrol.RequestDigest) int { return 1 },
					Cluster: func(ctx context.Context) string { return ctx.Value(clusterKey{}).(string) },
				}
				var forget []flowcontrol.ForgetWatchFunc
				for range open {
					forget = append(forget, control.RegisterWatch(requested(t, "a", request.RequestInfo{Verb: "watch", Resource: "configmaps"})))
				}
				began := time.Now()
				handle := func() {
					req := requested(t, c.cluster, c.info)
					info, _ := request.RequestInfoFrom(req.Context())
					control.Handle(req.Context(), flowcontrol.RequestDigest{RequestInfo: info},
						func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {}, nil, nil, func() {})
				}
				handle()
				if time.Since(began) != 0 {
					t.Errorf("the request takes %v longer", time.Since(began))
				}
				for control.takenPlaces() > 0 && time.Since(began) < time.Minute {
					time.Sleep(perWatcher)
					synctest.Wait()
				}
				if got := time.Since(began); got != c.want {
					t.Errorf("the place is free after %v, want %v", got, c.want)
				}
				for _, f := range forget {
					f()
				}
				if len(control.watchers.open) != 0 {
					t.Errorf("watches are counted that have ended: %v", control.watchers.open)
				}
				if handle(); control.takenPlaces() != 0 {
					t.Error("watches that have ended cost a place")
				}
			})
		})
	}
}

// A tenant beside whom nobody asks has more of the CPUs for its events, and no longer than that.
func TestATenantAloneTellsItsWatchersOfMoreWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := Flow{}
		control := &Control{
			Limiter: New(12, 100),
			Flow:    func(context.Context, flowcontrol.RequestDigest) Flow { return flow },
			Cost:    func(context.Context, flowcontrol.RequestDigest) int { return 1 },
			Cluster: func(ctx context.Context) string { return ctx.Value(clusterKey{}).(string) },
		}
		defer control.RegisterWatch(requested(t, "a", request.RequestInfo{Verb: "watch", Resource: "configmaps"}))()
		write := func(as Flow) (kept time.Duration) {
			flow = as
			req := requested(t, as.Tenant, request.RequestInfo{Verb: "create", Resource: "configmaps"})
			info, _ := request.RequestInfoFrom(req.Context())
			control.Handle(req.Context(), flowcontrol.RequestDigest{RequestInfo: info},
				func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {}, nil, nil, func() {})
			for began := time.Now(); control.takenPlaces() > 0; kept = time.Since(began) {
				time.Sleep(perWatcherAlone / 10)
				synctest.Wait()
			}
			return kept
		}
		for n, step := range []struct {
			after time.Duration
			by    Flow
			want  time.Duration
		}{
			{0, Flow{Tenant: "a"}, perWatcher},
			{aloneFor / 2, Flow{Tenant: "a"}, perWatcher},
			{aloneFor / 2, Flow{Tenant: "a"}, perWatcherAlone},
			{0, Flow{Tenant: "controllers", Background: true}, 0},
			{0, Flow{Tenant: "a"}, perWatcherAlone},
			{0, Flow{Tenant: "b"}, 0},
			{0, Flow{Tenant: "a"}, perWatcher},
			{aloneFor - time.Millisecond, Flow{Tenant: "a"}, perWatcher},
			{time.Millisecond, Flow{Tenant: "a"}, perWatcherAlone},
		} {
			time.Sleep(step.after)
			if got := write(step.by); got != step.want {
				t.Errorf("write %d keeps its place for %v, want %v", n, got, step.want)
			}
		}
	})
}

// What is no watch of a resource is not counted.
func TestOnlyWatchesOfResourcesAreCounted(t *testing.T) {
	control := &Control{Cluster: func(context.Context) string { return "a" }}
	if control.RegisterWatch(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)) != nil ||
		control.RegisterWatch(requested(t, "a", request.RequestInfo{Verb: "get", Resource: "configmaps"})) != nil {
		t.Error("counted")
	}
}

type clusterKey struct{}

func requested(t *testing.T, cluster string, info request.RequestInfo) *http.Request {
	info.IsResourceRequest = true
	ctx := request.WithRequestInfo(context.WithValue(t.Context(), clusterKey{}, cluster), &info)
	return httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
}

func (c *Control) takenPlaces() int {
	c.Limiter.mu.Lock()
	defer c.Limiter.mu.Unlock()
	return c.Limiter.handled.taken
}
