package edge

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"

	"github.com/regent-project/regent/pkg/server/apis"
)

// requestMetrics are upstream's metrics of requests that have labels with the names of resources.
var requestMetrics = []string{
	"apiserver_request_total", "apiserver_longrunning_requests", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds",
	"apiserver_request_body_size_bytes", "apiserver_response_sizes", "apiserver_watch_events_total", "apiserver_watch_events_sizes", "apiserver_request_terminations_total",
	"apiserver_selfrequest_total", "apiserver_request_aborts_total", "apiserver_watch_list_duration_seconds",
	"apiserver_requested_deprecated_apis",
}

// Subresources are all that the server knows. A request may name any other one.
var Subresources = []string{"", "status", "scale", "token", "finalize"}

// BoundRequestMetrics has requests for custom resources, and for Subresources that there are not, counted together,
// with the group, version, resource or subresource "unexpected". These names are users' choice, refused requests
// included, and a replica would keep the series of each name for ever: 20 KB of memory, or 400 for a long one (I18). It
// must be called before the first request.
var BoundRequestMetrics = sync.OnceFunc(func() {
	// those of requests for no resource are empty
	groups, versions, resources := sets.New(""), sets.New(""), sets.New("")
	for gvk := range apis.Scheme.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		groups.Insert(gvk.Group)
		versions.Insert(gvk.Version)
		resources.Insert(plural.Resource)
	}
	for _, r := range apis.Resources() {
		resources.Insert(r.GVR.Resource)
	}
	allowed := map[string]string{}
	for label, values := range map[string]sets.Set[string]{
		"group": groups, "version": versions, "resource": resources, "subresource": sets.New(Subresources...),
	} {
		list := strings.Join(slices.Sorted(slices.Values(values.UnsortedList())), ",")
		for _, name := range requestMetrics {
			allowed[name+","+label] = list
		}
	}
	metrics.SetLabelAllowList(allowed)
})
