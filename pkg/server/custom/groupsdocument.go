package custom

import (
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apidiscoveryv2conversion "k8s.io/apiserver/pkg/apis/apidiscovery/v2"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// groupsDocument answers /apis: the list of groups, or all resources of all groups at once if a client accepts that.
// Upstream's resource manager would do, too. But each of them has a scheme and codecs of its own, half a megabyte, and
// writes a line to the log for each version of each group.
type groupsDocument struct {
	list *metav1.APIGroupList
	all  *apidiscoveryv2.APIGroupDiscoveryList
	etag string
}

// discoveryCodecs encode what groupsDocument has.
var discoveryCodecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(apidiscoveryv2.AddToScheme(scheme))
	utilruntime.Must(apidiscoveryv2beta1.AddToScheme(scheme))
	utilruntime.Must(apidiscoveryv2conversion.RegisterConversions(scheme))
	return serializer.NewCodecFactory(scheme)
}()

// ServeHTTP implements http.Handler.
func (d *groupsDocument) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	wanted, _ := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), discoveryCodecs.SupportedMediaTypes(), aggregated.DiscoveryEndpointRestrictions)
	switch {
	case !aggregated.IsAggregatedDiscoveryGVK(wanted.Convert):
		responsewriters.WriteObjectNegotiated(
			apiextensionsapiserver.Codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, req, http.StatusOK, d.list, false)
	case wanted.Convert.Version == apidiscoveryv2beta1.SchemeGroupVersion.Version && utilfeature.DefaultFeatureGate.Enabled(features.AggregatedDiscoveryRemoveBetaType):
		http.Error(w, "aggregated discovery has no version v2beta1 any more: accept v2", http.StatusNotFound)
	default:
		aggregated.ServeHTTPWithETag(d.all, d.etag, wanted.Convert.GroupVersion(), discoveryCodecs, w, req)
	}
}
