package etcdfence

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/feature"
)

// It is what breaks when upstream changes: a guard that nothing reaches must not seem to be installed.
func TestStoresOfThisAPIServerCanBeGuarded(t *testing.T) {
	if err := probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	was := feature.DefaultFeatureSupportChecker
	defer func() { feature.DefaultFeatureSupportChecker = was }()
	feature.DefaultFeatureSupportChecker = was.(interface {
		upstream() feature.FeatureSupportChecker
	}).upstream()
	if err := probe(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be guarded") {
		t.Errorf("without the guard's checker: %v", err)
	}
}

func TestAnIncompleteConfigurationNamesTheField(t *testing.T) {
	etcd := &options.EtcdOptions{}
	etcd.StorageConfig.Transport.ServerList = []string{"http://127.0.0.1:1"}
	for names, config := range map[string]Config{
		"Config.Etcd":   {},
		"Config.Stored": {Etcd: etcd},
	} {
		if _, err := Install(t.Context(), config); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", names, err)
		}
	}
}

func TestTwoGuardsDoNotShareKeys(t *testing.T) {
	at := func(prefix string) *Guard {
		return &Guard{endpoints: []string{"a"}, prefix: prefix}
	}
	var r registry
	for prefix, free := range map[string]bool{"/registry/": false, "/registry/a/": false, "/registry/a/b/": false, "/other/": true} {
		r.guards = []*Guard{at("/registry/a/")}
		if err := r.add(at(prefix)); (err == nil) != free {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}
