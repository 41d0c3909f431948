package custom

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	serverstorage "github.com/regent-project/regent/pkg/server/storage"
)

// Storage has the custom objects of all logical clusters, and the contents by which they are read. Close it.
type Storage struct {
	Contents *Contents
	store    storage.Interface
	destroy  factory.DestroyFunc
}

// Encoding says how custom objects are stored, for storage.NewRESTOptionsGetter.
func Encoding() serverstorage.Encoding { return serverstorage.Encoding{Codec: codec{}, Collections: 2} }

// Open opens the storage of custom objects. The getter must store Resource as Encoding says.
func Open(getter generic.RESTOptionsGetter) (*Storage, error) {
	options, err := getter.GetRESTOptions(Resource, nil)
	if err != nil {
		return nil, fmt.Errorf("storage of custom objects: %w", err)
	}
	store, destroy, err := options.Decorator(
		options.StorageConfig, Prefix, keyOf, func() runtime.Object { return &object{} }, func() runtime.Object { return &objectList{} },
		attributes, nil, nil,
	)
	if err != nil {
		return nil, fmt.Errorf("storage of custom objects: %w", err)
	}
	return &Storage{Contents: &Contents{}, store: store, destroy: destroy}, nil
}

// Close closes the storage. No request may be under way.
func (s *Storage) Close() { s.destroy() }

// Ready returns an error until the watch cache has read all custom objects.
func (s *Storage) Ready() error { return s.store.ReadinessCheck() }
