package definition

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// store is a shard's etcd, with one export, parcels of cluster maker, and with bindings to it.
type store struct {
	t        *testing.T
	revision int
	schemas  map[string]resourceSchema // copies
	bindings map[logicalcluster.Name]binding
	events   []watch.Event // in the order of their revisions, of both
}

func (s *store) next(obj metav1.Object) {
	s.revision++
	obj.SetResourceVersion(strconv.Itoa(s.revision))
	if obj.GetUID() == "" {
		obj.SetUID(types.UID("uid-" + strconv.Itoa(s.revision)))
	}
}

func (s *store) setSchema(out resourceSchema) {
	of := watch.Modified
	if s.schemas[out.Name] == nil {
		of = watch.Added
	}
	s.next(out)
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, logicalcluster.AnnotationKey, clusters.BoundSchemas.String())
	s.schemas[out.Name] = out
	s.events = append(s.events, watch.Event{Type: of, Object: out.DeepCopy()})
}

func (s *store) setBinding(cluster logicalcluster.Name, out binding) {
	of := watch.Modified
	if s.bindings[cluster] == nil {
		of = watch.Added
	}
	s.next(out)
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, logicalcluster.AnnotationKey, cluster.String())
	s.bindings[cluster] = out
	s.events = append(s.events, watch.Event{Type: of, Object: out.DeepCopy()})
}

func (s *store) ask(cluster logicalcluster.Name) {
	s.setBinding(cluster, &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{clusters.ExportClusterAnnotation: "maker"}},
		Spec:       apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: "root:maker", Name: "parcels"}}},
	})
}

func (s *store) unbind(cluster logicalcluster.Name) {
	last := s.bindings[cluster].DeepCopy()
	s.next(last)
	delete(s.bindings, cluster)
	s.events = append(s.events, watch.Event{Type: watch.Deleted, Object: last})
}

var schemasResource = schema.GroupResource{Resource: "apiresourceschemas"}

// serve answers a request.
func (s *store) serve(method, path string, body []byte) (any, error) {
	_, path, _ = strings.Cut(path, "/clusters/")
	cluster, path, _ := strings.Cut(path, "/")
	parts := strings.Split(path, "/")
	of, name := parts[3], ""
	if len(parts) > 4 {
		name = parts[4]
	}
	switch {
	case of == "apiresourceschemas":
		return s.serveCopy(method, name, body)
	case of == "apibindings" && method == http.MethodPut:
		out := &apisv1alpha2.APIBinding{}
		if err := json.Unmarshal(body, out); err != nil {
			return nil, err
		}
		now := s.bindings[logicalcluster.Name(cluster)]
		if now == nil || now.UID != out.UID {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: of}, name)
		}
		if now.ResourceVersion != out.ResourceVersion {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: of}, name, errors.New("changed"))
		}
		s.setBinding(logicalcluster.Name(cluster), out)
		return out, nil
	case method == http.MethodGet && name == "":
		list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.revision)}}
		for at, b := range s.bindings {
			if of == "apibindings" && (cluster == "*" || cluster == at.String()) {
				list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: *b.ObjectMeta.DeepCopy()})
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("%s %s: no such request", method, path)
}

func (s *store) serveCopy(method, name string, body []byte) (any, error) {
	now := s.schemas[name]
	switch method {
	case http.MethodPost:
		out := &apisv1alpha1.APIResourceSchema{}
		if err := json.Unmarshal(body, out); err != nil {
			return nil, err
		}
		if s.schemas[out.Name] != nil {
			return nil, apierrors.NewAlreadyExists(schemasResource, out.Name)
		}
		s.setSchema(out)
		return out, nil
	case http.MethodGet:
	case http.MethodPut:
		out := &apisv1alpha1.APIResourceSchema{}
		if err := json.Unmarshal(body, out); err != nil {
			return nil, err
		}
		if now != nil && now.ResourceVersion != out.ResourceVersion {
			return nil, apierrors.NewConflict(schemasResource, name, errors.New("changed"))
		}
		if now != nil {
			s.setSchema(out)
			return out, nil
		}
	case http.MethodDelete:
		opts := &metav1.DeleteOptions{}
		if err := json.Unmarshal(body, opts); err != nil {
			return nil, err
		}
		if now != nil {
			if must := opts.Preconditions; *must.UID != now.UID || must.ResourceVersion != nil && *must.ResourceVersion != now.ResourceVersion {
				return nil, apierrors.NewConflict(schemasResource, name, errors.New("changed"))
			}
			last := now.DeepCopy()
			s.next(last)
			delete(s.schemas, name)
			s.events = append(s.events, watch.Event{Type: watch.Deleted, Object: last})
		}
	}
	if now == nil {
		return nil, apierrors.NewNotFound(schemasResource, name)
	}
	return now, nil
}

// late is the watch of a cache that gets each event when it is let.
type late struct {
	list   runtime.Object
	events chan watch.Event
}

func (l late) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return l.list, nil
}

func (l late) WatchWithContext(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	context.AfterFunc(ctx, func() { close(l.events) })
	return watch.NewProxyWatcher(l.events), nil
}

// process has the caches of one process, each as late as it may be, and the leader of a range, one after the other.
type process struct {
	*controller
	store  *store
	in     controllers.Informers
	caches map[string]chan watch.Event
	seen   map[string]int // how many events of the store a cache has been offered

	busy     bool
	err      error         // of the last piece of work
	requests chan struct{} // a request waits
	answer   chan bool     // it is answered, or its leader dies
}

// RoundTrip waits until the request is let through.
func (p *process) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
	}
	p.requests <- struct{}{}
	if !<-p.answer {
		return nil, errors.New("the leader has died")
	}
	code := http.StatusOK
	out, err := p.store.serve(req.Method, req.URL.Path, body)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		says := status.Status()
		says.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		code, out = int(says.Code), &says
	} else if err != nil {
		p.store.t.Errorf("request: %v", err)
		return nil, err
	}
	says, err := json.Marshal(out)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(says)), Request: req}, err
}

func startProcess(t *testing.T, s *store) *process {
	p := &process{store: s, caches: map[string]chan watch.Event{}, seen: map[string]int{}, requests: make(chan struct{}, 1), answer: make(chan bool)}
	source := offering("1", "parcels").Schemas["v1.parcels.example.com"].DeepCopy()
	source.ResourceVersion = "1"
	export := offering("1", "parcels").Export.DeepCopy()
	export.Annotations = map[string]string{logicalcluster.AnnotationKey: "maker"}
	p.in = controllertest.WithCustom(t, controllers.Informers{}, nil, nil)
	p.in.APIExports = controllertest.Informer(t, controllertest.NewSource(export), controllers.OwnerIndexers[*apisv1alpha2.APIExport]())
	for _, cache := range []string{"schemas", "bindings"} {
		p.caches[cache] = make(chan watch.Event, 1000)
	}
	p.in.APIResourceSchemas = clusters.NewInformer[resourceSchema](late{&apisv1alpha1.APIResourceSchemaList{
		ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []apisv1alpha1.APIResourceSchema{*source}}, p.caches["schemas"]}, controllers.OwnerIndexers[resourceSchema]())
	p.in.APIBindings = clusters.NewInformer[binding](late{&apisv1alpha2.APIBindingList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, p.caches["bindings"]}, controllers.BindingIndexers())
	controllertest.Run(t, p.in.APIResourceSchemas, p.in.APIBindings)
	p.succeed()
	return p
}

// succeed begins a term.
func (p *process) succeed() {
	clients, err := controllers.NewClients(&rest.Config{Host: "http://127.0.0.1", QPS: -1}, &http.Client{Transport: clusters.Transport(p)})
	if err != nil {
		p.store.t.Fatal(err)
	}
	c, err := construct(p.store.t.Context(), controllers.Deps{Shard: "root", Informers: p.in, Clients: clients})
	if err != nil {
		p.store.t.Fatal(err)
	}
	p.controller, p.busy = c.(*controller), false
}

// hear gives a cache its next event, if there is one.
func (p *process) hear(cache string) bool {
	for p.seen[cache] < len(p.store.events) {
		event := p.store.events[p.seen[cache]]
		p.seen[cache]++
		if _, isSchema := event.Object.(resourceSchema); isSchema == (cache == "schemas") {
			p.caches[cache] <- event
			synctest.Wait()
			return true
		}
	}
	return false
}

// begin starts a piece of work, which waits at its first request. The bubble does not end before it does.
func (p *process) begin(work func(*controller) error) {
	p.busy = true
	c := p.controller
	go func() {
		err := work(c)
		if c == p.controller {
			p.busy, p.err = false, err
		}
	}()
	synctest.Wait()
}

// proceed has the request that waits answered, or the leader die at it. It returns false if none waits.
func (p *process) proceed(lives bool) bool {
	select {
	case <-p.requests:
	default:
		return false
	}
	if !lives {
		p.succeed()
	}
	p.answer <- lives
	synctest.Wait()
	return true
}

// Leaders of three ranges, whose caches are late and who may die at any request: two bind the same schema and are
// unbound, again and again, and one deletes copies that nobody uses. Whoever is told that it is bound has its copy for
// as long as it stays so. In the end each binding has a copy, and there is none that nobody uses.
func TestLeadersOfSeveralRangesShareCopiesI17(t *testing.T) {
	copied := clusters.BoundSchemaKeyOf("uid-of-parcels", "parcels", "example.com")
	// step: somebody hears so many events, begins its work or goes on with it, for so many requests.
	type step struct {
		Who, Schemas, Bindings, Requests int
		Asks, Pauses, Dies               bool
	}
	some, seldom := rapid.SampledFrom([]int{0, 1, 2, 9}), rapid.SampledFrom([]bool{true, false, false, false, false})
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			rapid.IntRange(0, 2).Draw(t, "who"), some.Draw(t, "schemas"), some.Draw(t, "bindings"), some.Draw(t, "requests"),
			seldom.Draw(t, "asks"), rapid.Bool().Draw(t, "pauses"), seldom.Draw(t, "dies"),
		}
	}), 1, 40)
	rapid.Check(t, func(r *rapid.T) {
		script, failure := steps.Draw(r, "steps"), ""
		synctest.Test(t, func(t *testing.T) {
			s := &store{t: t, revision: 1, schemas: map[string]resourceSchema{}, bindings: map[logicalcluster.Name]binding{}}
			ctx := klog.NewContext(t.Context(), logr.Discard())
			var all []*process
			for range 3 {
				all = append(all, startProcess(t, s))
			}
			told := map[logicalcluster.Name]bool{} // that it is bound, by a bind that has ended
			work := func(n int) {
				p, cluster := all[n], logicalcluster.Name(fmt.Sprint("c", n))
				if p.busy {
					return
				}
				if n == 2 {
					p.begin(func(c *controller) error { return c.release(clusters.With(ctx, clusters.BoundSchemas), copied) })
					return
				}
				p.begin(func(c *controller) error {
					err := c.bind(clusters.With(ctx, cluster), clusters.Key{Cluster: cluster, Name: "b"})
					if b := s.bindings[cluster]; err == nil && c == p.controller && b != nil && len(b.Status.BoundResources) > 0 {
						told[cluster] = true
					}
					return err
				})
			}
			check := func(when string) {
				for cluster := range told {
					if b := s.bindings[cluster]; b == nil || len(b.Status.BoundResources) == 0 {
						delete(told, cluster)
					} else if s.schemas[copied.Name] == nil && failure == "" {
						failure = fmt.Sprintf("%s: %s is bound, and its copy has gone", when, cluster)
					}
				}
			}
			for n, next := range script {
				p, cluster := all[next.Who], logicalcluster.Name(fmt.Sprint("c", next.Who))
				if next.Asks && next.Who < 2 {
					if s.bindings[cluster] == nil {
						s.ask(cluster)
					} else {
						s.unbind(cluster)
					}
				}
				for k := 0; k < next.Schemas && p.hear("schemas"); k++ {
				}
				for k := 0; k < next.Bindings && p.hear("bindings"); k++ {
				}
				work(next.Who)
				for k := 0; k < next.Requests && p.proceed(!next.Dies || k+1 < next.Requests); k++ {
					check(fmt.Sprint("step ", n))
				}
				if next.Pauses {
					time.Sleep(unusedAfter)
				}
				check(fmt.Sprint("step ", n))
			}
			// faults end
			for round := 0; round < 40; round++ {
				for n, p := range all {
					for p.hear("schemas") || p.hear("bindings") {
					}
					work(n)
					for p.proceed(true) {
					}
				}
				time.Sleep(unusedAfter)
				check("in the end")
			}
			bound := 0
			for cluster, b := range s.bindings {
				if bound++; len(b.Status.BoundResources) == 0 && failure == "" {
					failure = fmt.Sprintf("%s is not bound in the end: %v", cluster, b.Status.Conditions)
				}
			}
			if has := len(s.schemas) > 0; has != (bound > 0) && failure == "" {
				failure = fmt.Sprintf("in the end there are %d bindings, and the copies %v", bound, slices.Collect(maps.Keys(s.schemas)))
			}
			for _, p := range all {
				if p.busy && failure == "" {
					failure = "somebody works for ever"
				}
			}
		})
		if failure != "" {
			r.Fatal(failure)
		}
	})
}
