package custom

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
	"weak"

	"github.com/kcp-dev/logicalcluster/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/validation/spec"

	serverstorage "github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/pkg/server/webhooks"
)

// What the handlers of contents may take together, and those of one logical cluster half of it. A handler has its
// schemas decoded and its rules compiled, which is ten to forty times its definition. One that is needed again after it
// was dropped is made again, in a few milliseconds.
const (
	maxHandlers     = 2000
	maxHandlerBytes = 32 << 20 // of definitions
)

// HandlerConfig is what the handlers of all contents have in common.
type HandlerConfig struct {
	Admission  admission.Interface
	Authorizer authorizer.UnconditionalAuthorizer
	// Schemas are the schemas of metadata, for server-side apply.
	Schemas           map[string]*spec.Schema
	RequestTimeout    time.Duration
	MinRequestTimeout time.Duration
	// Internal reports whether a request is one of this process's controllers. It may be nil.
	Internal func(context.Context) bool
	// MaxRequestBytes bounds the body of a write.
	MaxRequestBytes int64
	// Webhooks are where conversion webhooks may be.
	Webhooks webhooks.Networks
}

// handlers makes the handlers of contents, upstream's own: one for each content, whatever the number of logical
// clusters. (Upstream's makes one for each definition, and looks up definitions by their names alone, so that one
// handler cannot serve two clusters.)
type handlers struct {
	cfg        HandlerConfig
	base       storage.Interface
	converters *converters

	mu sync.Mutex
	// recent has the contents that have a handler. It does not keep them from being collected.
	recent recent[contentHash, weak.Pointer[Content]]
}

func newHandlers(cfg HandlerConfig, base storage.Interface) *handlers {
	return &handlers{cfg: cfg, base: base, converters: newConverters(cfg.Webhooks), recent: newRecent[contentHash, weak.Pointer[Content]](maxHandlers, maxHandlerBytes)}
}

// of returns the handler of a content, for a logical cluster.
func (h *handlers) of(cluster logicalcluster.Name, c *Content) (http.Handler, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handler == nil {
		made, err := h.build(c)
		if err != nil {
			return nil, err
		}
		c.handler = made
	}
	handler := c.handler
	for _, other := range h.use(cluster, c) {
		if other != c && other.mu.TryLock() { // otherwise it is used right now
			other.handler = nil
			other.mu.Unlock()
		}
	}
	return handler, nil
}

// use notes that a cluster uses a content. It returns those whose handlers are to be dropped for it. Requests that
// these serve go on.
func (h *handlers) use(cluster logicalcluster.Name, c *Content) (dropped []*Content) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if was, ok := h.recent.use(cluster, c.hash); ok && was.Value() == c {
		return nil
	}
	for _, weakly := range h.recent.add(cluster, c.hash, weak.Make(c), c.size) {
		if other := weakly.Value(); other != nil {
			dropped = append(dropped, other)
		}
	}
	return dropped
}

// forget notes that a content was collected.
func (h *handlers) forget(hash contentHash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if was, ok := h.recent.entries[hash]; ok && was.Value.(*entry[contentHash, weak.Pointer[Content]]).value.Value() == nil {
		h.recent.remove(hash)
	}
}

func (h *handlers) build(c *Content) (http.Handler, error) {
	definition, hook, calls := c.definition(), h.converters.of(c), webhook.AuthenticationInfoResolverWrapper(nil)
	// upstream calls it for what its views do not convert: what other versions of an object its managers have
	// applied
	if hook != nil {
		definition, calls = hook.definition, hook.as(context.Background())
	}
	made, err := apiserver.NewCustomResourceDefinitionHandler(
		nil, nil, alone{definition}, http.NotFoundHandler(), &viewed{h.base, c, hook, versions{}}, h.cfg.Admission, nil, nil, calls, 1,
		h.cfg.Authorizer, h.cfg.RequestTimeout, h.cfg.MinRequestTimeout, h.cfg.Schemas, h.cfg.MaxRequestBytes,
	)
	if err != nil {
		return nil, fmt.Errorf("a handler for %s.%s: %w", c.names.Plural, c.spec.Group, err)
	}
	return made, nil
}

// viewed has upstream's stores read and write custom objects through views.
type viewed struct {
	base    storage.Interface
	content *Content
	webhook *converter // nil if there is none
	views   versions
}

// GetRESTOptions implements generic.RESTOptionsGetter. Upstream calls it for each version, and has put the codec of
// that version into the configuration when it calls the decorator.
func (o *viewed) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	kind := schema.GroupKind{Group: o.content.spec.Group, Kind: o.content.names.Kind}
	return generic.RESTOptions{
		StorageConfig:           storagebackend.NewDefaultConfig("", unstructured.UnstructuredJSONScheme).ForResource(resource),
		ResourcePrefix:          collection(kind),
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 1,
		Decorator: func(
			config *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error), empty, _ func() runtime.Object,
			_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			version := empty().GetObjectKind().GroupVersionKind().Version
			made := &view{
				Interface: o.base, identifier: runtime.Identifier(o.content.ID() + "/" + version), kind: kind, namespaced: o.content.spec.Scope == apiextensionsv1.NamespaceScoped, version: version,
				codec: config.Codec, empty: empty,
				webhook: o.webhook, others: o.views,
			}
			o.views[version] = made
			return serverstorage.Beneath(o.base, made), func() {}, nil
		},
	}, nil
}

// alone is an informer of one definition that never changes.
type alone struct {
	definition *apiextensionsv1.CustomResourceDefinition
}

// Informer implements informers.CustomResourceDefinitionInformer.
func (a alone) Informer() cache.SharedIndexInformer { return silent{} }

// Lister implements informers.CustomResourceDefinitionInformer.
func (a alone) Lister() listers.CustomResourceDefinitionLister { return a }

// Get implements listers.CustomResourceDefinitionLister.
func (a alone) Get(string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return a.definition, nil
}

// List implements listers.CustomResourceDefinitionLister.
func (a alone) List(labels.Selector) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return []*apiextensionsv1.CustomResourceDefinition{a.definition}, nil
}

// silent is an informer that never tells of a change. Upstream's handler asks it for nothing else.
type silent struct{ cache.SharedIndexInformer }

// AddEventHandler implements cache.SharedIndexInformer.
func (silent) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

var (
	_ informers.CustomResourceDefinitionInformer = alone{}
	_ generic.RESTOptionsGetter                  = (*viewed)(nil)
)
