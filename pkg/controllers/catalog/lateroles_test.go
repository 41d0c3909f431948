package catalog

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/aggregation"
	"github.com/regent-project/regent/test/until"
)

// roles are the ClusterRoles of the cluster x7, by name. A role is a list of resources that it allows to get.
type roles struct {
	*testing.T
	*shard
}

func (r roles) ctx() context.Context { return clusters.With(r.Context(), "x7") }

func (r roles) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func rules(resources ...string) (out []rbacv1.PolicyRule) {
	for _, resource := range resources {
		out = append(out, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}})
	}
	return out
}

func (r roles) create(name, label string, resources ...string) {
	r.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "1"}}, Rules: rules(resources...)}
	_, err := r.deps.Clients.Kube.RbacV1().ClusterRoles().Create(r.ctx(), role, metav1.CreateOptions{})
	r.must(err)
}

func takesIn(label string) *rbacv1.AggregationRule {
	return &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{label: "1"}}}}
}

func (r roles) change(name string, change func(*rbacv1.ClusterRole)) {
	r.Helper()
	role, err := r.deps.Clients.Kube.RbacV1().ClusterRoles().Get(r.ctx(), name, metav1.GetOptions{})
	r.must(err)
	change(role)
	_, err = r.deps.Clients.Kube.RbacV1().ClusterRoles().Update(r.ctx(), role, metav1.UpdateOptions{})
	r.must(err)
}

func (r roles) remove(name string) {
	r.Helper()
	r.must(r.deps.Clients.Kube.RbacV1().ClusterRoles().Delete(r.ctx(), name, metav1.DeleteOptions{}))
}

// allows returns what a role in storage allows to get.
func (r roles) allows(name string) (resources []string) {
	r.Helper()
	role, err := r.deps.Clients.Kube.RbacV1().ClusterRoles().Get(r.ctx(), name, metav1.GetOptions{})
	r.must(err)
	for _, rule := range role.Rules {
		resources = append(resources, rule.Resources...)
	}
	return resources
}

// asOf is a source of ClusterRoles that tells of nothing after its list.
type asOf struct{ list *metav1.List }

func (s asOf) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return s.list, nil
}

func (s asOf) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

// cache returns an informer that has what is in storage now, and learns of nothing more.
func (r roles) cache() *clusters.Informer[*rbacv1.ClusterRole] {
	r.Helper()
	live, err := r.deps.Clients.Kube.RbacV1().ClusterRoles().List(r.ctx(), metav1.ListOptions{})
	r.must(err)
	list := &metav1.List{ListMeta: live.ListMeta}
	for i := range live.Items {
		list.Items = append(list.Items, runtime.RawExtension{Object: &live.Items[i]})
	}
	informer := clusters.NewInformer[*rbacv1.ClusterRole](asOf{list}, controllers.ClusterRoleIndexers())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- informer.Run(ctx) }()
	r.Cleanup(func() { cancel(); <-ended })
	<-informer.Synced()
	return informer
}

// lead runs a term of the controller, until done.
func (r roles) lead(from *clusters.Informer[*rbacv1.ClusterRole], clients controllers.Clients, what string, done func(controllers.Health) bool) {
	r.Helper()
	deps := r.deps
	deps.Clients, deps.Informers.ClusterRoles = clients, from
	c, err := aggregation.Descriptor().New(r.Context(), deps)
	r.must(err)
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	until.So(r.T, what, func() bool { return done(c.(controllers.Reporter).Report()) })
	cancel()
	if err := <-ended; err != nil {
		r.Error(err)
	}
}

// hasLooked says that a controller for which something was due has looked at all there is.
func hasLooked(h controllers.Health) bool {
	return h.Returned > 0 && h.Pending == 0 && !h.Sweep.Running
}

// aggregated creates a role with an aggregation rule.
func (r roles) aggregated(name, label, from string) {
	r.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "1"}}, AggregationRule: takesIn(from)}
	_, err := r.deps.Clients.Kube.RbacV1().ClusterRoles().Create(r.ctx(), role, metav1.CreateOptions{})
	r.must(err)
}

// due gives a controller something to do, so that it is known when it has looked.
func (r roles) due() {
	r.Helper()
	r.change("due", func(role *rbacv1.ClusterRole) { role.Rules = nil })
}

// A leader whose cache is late fills an aggregated role with what it knows, or is refused; the next one makes it right.
// Whatever changed meanwhile in the aggregated role itself wins.
func TestALateCacheFillsNoRoleForLong(t *testing.T) {
	s := startShard(t)
	for name, c := range map[string]struct {
		meanwhile func(roles)
		refused   bool     // the late leader's write
		then      []string // what the late leader leaves
		want      []string
	}{
		"nothing changes":      {func(roles) {}, false, []string{"secrets"}, []string{"secrets"}},
		"it allows less":       {func(r roles) { r.change("a", func(a *rbacv1.ClusterRole) { a.Rules = rules("events") }) }, false, []string{"secrets"}, []string{"events"}},
		"it is not selected":   {func(r roles) { r.change("a", func(a *rbacv1.ClusterRole) { a.Labels = nil }) }, false, []string{"secrets"}, nil},
		"it has gone":          {func(r roles) { r.remove("a") }, false, []string{"secrets"}, nil},
		"another one comes":    {func(r roles) { r.create("b", "x", "pods") }, false, []string{"secrets"}, []string{"secrets", "pods"}},
		"others are selected":  {func(r roles) { r.change("all", func(all *rbacv1.ClusterRole) { all.AggregationRule = takesIn("y") }) }, true, nil, []string{"events"}},
		"a user writes rules":  {func(r roles) { r.change("all", func(all *rbacv1.ClusterRole) { all.Rules = rules("mine") }) }, true, []string{"mine"}, []string{"secrets"}},
		"it is no sum anymore": {func(r roles) { r.change("all", func(all *rbacv1.ClusterRole) { all.AggregationRule = nil }) }, true, nil, nil},
		"another of its name":  {func(r roles) { r.remove("all"); r.create("all", "z", "pods") }, true, []string{"pods"}, []string{"pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := roles{t, s}
			r.create("a", "x", "secrets")
			r.create("c", "y", "events")
			r.aggregated("all", "sum", "x")
			r.aggregated("due", "sum", "y")
			t.Cleanup(func() {
				r.must(s.deps.Clients.Kube.RbacV1().ClusterRoles().DeleteCollection(clusters.With(context.WithoutCancel(t.Context()), "x7"), metav1.DeleteOptions{}, metav1.ListOptions{}))
			})
			late := r.cache()
			c.meanwhile(r)
			before := r.allows("all")
			r.lead(late, s.leader, "the late leader has looked", hasLooked)
			if got := r.allows("all"); !slices.Equal(got, c.then) || c.refused && !slices.Equal(got, before) {
				t.Errorf("the late leader leaves %q, want %q; it was %q", got, c.then, before)
			}
			r.due()
			r.lead(s.deps.Informers.ClusterRoles, s.leader, "the next leader has looked, and the role is right", func(h controllers.Health) bool {
				return hasLooked(h) && slices.Equal(r.allows("all"), c.want)
			})
			r.due()
			r.lead(r.cache(), s.leader, "a third one has looked", hasLooked)
			if got := r.allows("all"); !slices.Equal(got, c.want) {
				t.Errorf("a third leader leaves %q, want %q", got, c.want)
			}
		})
	}
}

// dying commits one write, and loses its answer and whatever follows.
type dying struct {
	next   http.RoundTripper
	writes atomic.Int64
}

func (d *dying) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPut {
		return d.next.RoundTrip(req)
	}
	if d.writes.Add(1) > 1 {
		return nil, context.Canceled
	}
	resp, err := d.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	return nil, context.Canceled
}

// A leader dies when the first of three roles that take in each other is filled. None of them ever has what no role
// gives, and the next leader fills all.
func TestALeaderThatDiesWhileItFillsRolesIsSucceeded(t *testing.T) {
	s := startShard(t)
	r := roles{t, s}
	r.create("a", "x", "secrets", "events")
	for _, role := range []struct{ name, label, takesIn string }{{"one", "y", "x"}, {"two", "z", "y"}, {"three", "last", "z"}} {
		r.aggregated(role.name, role.label, role.takesIn)
	}
	connections := &http.Transport{}
	t.Cleanup(connections.CloseIdleConnections)
	d := &dying{next: clusters.Transport(connections)}
	clients := newDeps(t, &rest.Config{Host: s.url, QPS: -1}, &http.Client{Transport: d}).Clients
	filled := func() (names []string) {
		for _, name := range []string{"one", "two", "three"} {
			switch got := r.allows(name); {
			case slices.Equal(got, []string{"secrets", "events"}):
				names = append(names, name)
			case len(got) > 0:
				t.Errorf("%s allows %q", name, got)
			}
		}
		return names
	}
	r.lead(s.deps.Informers.ClusterRoles, clients, "the leader is about to write again", func(controllers.Health) bool { return d.writes.Load() > 1 })
	if got := strings.Join(filled(), " "); got != "one" {
		t.Errorf("the leader that died has filled %q, want one", got)
	}
	r.lead(s.deps.Informers.ClusterRoles, s.leader, "the next leader has filled all", func(controllers.Health) bool { return len(filled()) == 3 })
}
