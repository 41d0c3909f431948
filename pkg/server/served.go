package server

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/apis"
	apisadmission "github.com/regent-project/regent/pkg/server/apis/admission"
	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/storage"
)

// codecs encode what is served.
func codecs() serializer.CodecFactory { return apis.Codecs }

// served is what the server serves, over its storage.
type served struct {
	storage *storage.Client
	client  *clientv3.Client
	// keys are the checks of what encrypts, secrets is what encrypts Secrets.
	keys      []healthz.HealthChecker
	secrets   value.Transformer
	resources []controllers.Resource
	// live can be used when install has returned.
	live live
}

// readEncryption reads how objects are encrypted in etcd; nil: they are not. What it starts, for keys that a KMS has, ends
// with ctx.
func readEncryption(ctx context.Context, file, apiServerID string) (*encryptionconfig.EncryptionConfiguration, error) {
	if file == "" {
		return nil, nil
	}
	encryption, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, apiServerID)
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: cannot use %s: %w", file, err)
	}
	return encryption, nil
}

// newServed does not wait for etcd.
func newServed(transport storagebackend.TransportConfig, cfg Config, encryption *encryptionconfig.EncryptionConfiguration) (*served, error) {
	s := &served{}
	stored := storage.Config{Transport: transport, Prefix: cfg.EtcdPrefix}
	transformers := encryptionconfig.StaticTransformers{}
	if encryption != nil {
		transformers, s.keys = encryption.Transformers, encryption.HealthChecks
		stored.Transformers = transformers
	}
	s.secrets = transformers.TransformerForResource(corev1.Resource("secrets"))
	var err error
	if s.storage, err = storage.NewClient(stored); err != nil {
		return nil, err
	}
	s.client = s.storage.Etcd()
	for _, r := range apis.Resources() {
		s.resources = append(s.resources, controllers.Resource(r))
	}
	return s, nil
}

func (s *served) configure(config *genericapiserver.Config) { openapi.Configure(config, apis.Scheme) }

// admission returns what writes must pass.
func (s *served) admission(informer *clusters.Informer[*corev1.Namespace]) admission.Interface {
	return admission.NewChainHandler(
		&apisadmission.NamespaceLifecycle{Namespaces: namespaces{informer, &s.live}},
		&apisadmission.TenancyProtection{Leader: leaderUser},
	)
}

func (s *served) install(server *genericapiserver.GenericAPIServer) (err error) {
	s.live.reader, err = apis.Install(server, apis.NewGetter(s.storage))
	return err
}

// close comes after the server has destroyed its stores.
func (s *served) close() { _ = s.storage.Close() }

// namespaces finds namespaces for admission.
type namespaces struct {
	informer *clusters.Informer[*corev1.Namespace]
	live     *live
}

func (n namespaces) Cached(cluster logicalcluster.Name, name string) (*corev1.Namespace, bool) {
	return n.informer.Get(clusters.Key{Cluster: cluster, Name: name})
}

func (n namespaces) Live(ctx context.Context, cluster logicalcluster.Name, name string) (*corev1.Namespace, error) {
	return n.live.reader.Namespace(inCluster(ctx, cluster), name)
}

// Leaving also holds of a cluster whose LogicalCluster has gone; permanent clusters never leave.
func (n namespaces) Leaving(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	if clusters.IsPermanent(cluster) {
		return false, nil
	}
	lc, err := n.live.LogicalCluster(ctx, cluster)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return !lc.DeletionTimestamp.IsZero(), nil
}
