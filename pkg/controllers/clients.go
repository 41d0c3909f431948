package controllers

import (
	"fmt"
	"net/http"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Clients reach every logical cluster. Each call goes to the cluster in its context (see clusters.With), and fails with
// clusters.ErrNoCluster if there is none.
type Clients struct {
	Kube            kubernetes.Interface
	Dynamic         dynamic.Interface
	Metadata        metadata.Interface
	Workspaces      *gentype.ClientWithList[*tenancyv1alpha1.Workspace, *tenancyv1alpha1.WorkspaceList]
	LogicalClusters *gentype.ClientWithList[*corev1alpha1.LogicalCluster, *corev1alpha1.LogicalClusterList]
	Shards          *gentype.ClientWithList[*corev1alpha1.Shard, *corev1alpha1.ShardList]
	Definitions     *gentype.ClientWithList[*apiextensionsv1.CustomResourceDefinition, *apiextensionsv1.CustomResourceDefinitionList]
	Schemas         *gentype.ClientWithList[*apisv1alpha1.APIResourceSchema, *apisv1alpha1.APIResourceSchemaList]
	Bindings        *gentype.ClientWithList[*apisv1alpha2.APIBinding, *apisv1alpha2.APIBindingList]
}

// NewClients returns clients that send their requests with client, to the host in config. The transport of client
// decides which logical cluster a request goes to: it is a clusters.Transport, or config's host is the URL of one
// cluster.
func NewClients(config *rest.Config, client *http.Client) (Clients, error) {
	kube, err := kubernetes.NewForConfigAndClient(inProtobuf(config), client)
	if err != nil {
		return Clients{}, fmt.Errorf("cannot make the typed client: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(dynamic.ConfigFor(config), client)
	if err != nil {
		return Clients{}, fmt.Errorf("cannot make the dynamic client: %w", err)
	}
	meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), client)
	if err != nil {
		return Clients{}, fmt.Errorf("cannot make the metadata client: %w", err)
	}
	tenancy, err := restClient(config, client, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	core, err := restClient(config, client, corev1alpha1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	extensions, err := restClient(config, client, apiextensionsv1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	schemas, err := restClient(config, client, apisv1alpha1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	bindings, err := restClient(config, client, apisv1alpha2.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	return Clients{
		Kube:     kube,
		Dynamic:  dyn,
		Metadata: nameChecker{meta},
		Workspaces: gentype.NewClientWithList("workspaces", tenancy, parameters, "",
			func() *tenancyv1alpha1.Workspace { return &tenancyv1alpha1.Workspace{} },
			func() *tenancyv1alpha1.WorkspaceList { return &tenancyv1alpha1.WorkspaceList{} }),
		LogicalClusters: gentype.NewClientWithList("logicalclusters", core, parameters, "",
			func() *corev1alpha1.LogicalCluster { return &corev1alpha1.LogicalCluster{} },
			func() *corev1alpha1.LogicalClusterList { return &corev1alpha1.LogicalClusterList{} }),
		Shards: gentype.NewClientWithList("shards", core, parameters, "",
			func() *corev1alpha1.Shard { return &corev1alpha1.Shard{} },
			func() *corev1alpha1.ShardList { return &corev1alpha1.ShardList{} }),
		Definitions: gentype.NewClientWithList("customresourcedefinitions", extensions, parameters, "",
			func() *apiextensionsv1.CustomResourceDefinition { return &apiextensionsv1.CustomResourceDefinition{} },
			func() *apiextensionsv1.CustomResourceDefinitionList {
				return &apiextensionsv1.CustomResourceDefinitionList{}
			}),
		Schemas: gentype.NewClientWithList("apiresourceschemas", schemas, parameters, "",
			func() *apisv1alpha1.APIResourceSchema { return &apisv1alpha1.APIResourceSchema{} },
			func() *apisv1alpha1.APIResourceSchemaList { return &apisv1alpha1.APIResourceSchemaList{} }),
		Bindings: gentype.NewClientWithList("apibindings", bindings, parameters, "",
			func() *apisv1alpha2.APIBinding { return &apisv1alpha2.APIBinding{} },
			func() *apisv1alpha2.APIBindingList { return &apisv1alpha2.APIBindingList{} }),
	}, nil
}

// IgnoreNotFound returns nil for an error which says that an object does not exist, and any other error as it is.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// inProtobuf returns config for clients of Kubernetes' own types. Protobuf takes less time than JSON on both sides.
func inProtobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	// an error may come as text
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// restClient returns a client for a group version that is not of Kubernetes' own clients, in JSON: kcp's types have no
// protobuf encoding.
func restClient(config *rest.Config, client *http.Client, gv schema.GroupVersion) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	config.NegotiatedSerializer = codecs.WithoutConversion()
	out, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %s: %w", gv, err)
	}
	return out, nil
}

var (
	scheme     = newScheme()
	codecs     = serializer.NewCodecFactory(scheme)
	parameters = runtime.NewParameterCodec(scheme)
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(tenancyv1alpha1.AddToScheme(scheme))
	utilruntime.Must(corev1alpha1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(apisv1alpha1.AddToScheme(scheme))
	utilruntime.Must(apisv1alpha2.AddToScheme(scheme))
	return scheme
}
