package options

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/pki"
)

// One test uses the flags, because the feature gate takes its flag only once.
func TestEachBadValueIsOneLineThatNamesItsFlag(t *testing.T) {
	for _, c := range []struct {
		set  func(*Options)
		want string
	}{
		{func(o *Options) { o.RootDirectory = "" }, "--root-directory"},
		{func(o *Options) { o.ShardName = "Not a name" }, "--shard-name"},
		{func(o *Options) { o.ReplicaName = "host_a" }, "--replica-name"},
		{func(o *Options) { o.ReplicaName = "Host-a" }, "--replica-name"},
		{func(o *Options) { o.ReplicaName = "-a" }, "--replica-name"},
		{func(o *Options) { o.ReplicaName = "a." }, "--replica-name"},
		{func(o *Options) { o.ReplicaName = "a/b" }, "--replica-name"},
		{func(o *Options) { o.ReplicaName = strings.Repeat("a", 64) }, "--replica-name"},
		{func(o *Options) { o.AdvertiseAddress = "nowhere" }, "--advertise-address"},
		{func(o *Options) { o.AdvertiseAddress = "0.0.0.0" }, "--advertise-address"},
		{func(o *Options) { o.ExternalHostname = "a_b" }, "--external-hostname"},
		{func(o *Options) { o.ShardBaseURL = "http://h" }, "--shard-base-url"},
		{func(o *Options) { o.ShardBaseURL = "https://h/" }, "--shard-base-url"},
		{func(o *Options) { o.ProbePort = 70000 }, "--probe-port"},
		{func(o *Options) { o.Limits.RequestTimeout = 0 }, "--request-timeout"},
		{func(o *Options) { o.Limits.RequestsInFlight = -1 }, "--max-requests-inflight"},
		{func(o *Options) { o.Limits.MutatingRequestsInFlight = -1 }, "--max-mutating-requests-inflight"},
		{func(o *Options) { o.Limits.RequestsPerCPU = -1 }, "--max-requests-inflight-per-cpu"},
		{func(o *Options) { o.Limits.ObjectsPerCluster = -1 }, "--max-objects-per-cluster"},
		{func(o *Options) { o.Limits.BytesPerCluster = -1 }, "--max-bytes-per-cluster"},
		{func(o *Options) { o.Limits.HistoryBytes = -1 }, "--max-history-bytes"},
		{func(o *Options) { o.Limits.WorkspacesPerCluster = -1 }, "--max-workspaces-per-cluster"},
		{func(o *Options) { o.Limits.WorkspaceDepth = -1 }, "--max-workspace-depth"},
		{func(o *Options) { o.Limits.Connections = -1 }, "--max-connections"},
		{func(o *Options) { o.Limits.Watches = -1 }, "--max-watches"},
		{func(o *Options) { o.Limits.ConnectionsPerClient = 20_000 }, "--max-connections-per-client"},
		{func(o *Options) { o.Limits.GoawayChance = 0.5 }, "--goaway-chance"},
		{func(o *Options) { o.Limits.GoawayChance = math.NaN() }, "--goaway-chance"},
		{func(o *Options) { o.Limits.HSTS = []string{"max-age=31536000", "always"} }, "--strict-transport-security-directives"},
		{func(o *Options) { o.Limits.HSTS = []string{"max-age=soon"} }, "--strict-transport-security-directives"},
		{func(o *Options) { o.ShutdownDelay = -time.Second }, "--shutdown-delay-duration"},
		{func(o *Options) { o.Serving.CipherSuites = []string{"ROT13"} }, "--tls-cipher-suites"},
		{func(o *Options) { o.Serving.MinTLSVersion = "VersionTLS99" }, "--tls-min-version"},
		{func(o *Options) { o.Serving.BindPort = 0 }, "--secure-port"},
		{func(o *Options) { o.Serving.ServerCert.CertKey.CertFile = "c" }, "--tls-private-key-file"},
		{func(o *Options) { o.Serving.ServerCert.CertDirectory = "d" }, "--cert-dir"},
		{func(o *Options) { o.EtcdPrefix = "registry" }, "--etcd-prefix"},
		{func(o *Options) { o.EtcdPrefix = "/" }, "--etcd-prefix"},
		{func(o *Options) { o.Etcd.ServerList = []string{"127.0.0.1:2379"} }, "--etcd-servers"},
		{func(o *Options) {
			o.Etcd.ServerList = []string{"https://127.0.0.1:1", "http://127.0.0.1:2"}
			o.Etcd.TrustedCAFile = "c"
		}, `"http://127.0.0.1:2"`},
		{func(o *Options) { o.Etcd.CertFile = "c" }, "--etcd-keyfile"},
		{func(o *Options) { o.Etcd.TrustedCAFile = "c" }, "--etcd-cafile"},
		{func(o *Options) {
			o.Etcd.ServerList = []string{"http://127.0.0.1:1"}
			o.EmbeddedEtcd.ClientPort = 2379
		}, "--embedded-etcd-client-port"},
		{func(o *Options) { o.EncryptionConfigFile = "/nonexistent" }, "--encryption-provider-config"},
		{func(o *Options) { o.ServiceAccounts.MaxTokenLifetime = time.Minute }, "--service-account-max-token-expiration"},
		{func(o *Options) { o.ServiceAccounts.Issuer = "a:b" }, "--service-account-issuer"},
		{func(o *Options) { o.ServiceAccounts.SigningKeyFile = "/nonexistent" }, "--service-account-signing-key-file"},
		{func(o *Options) { o.ServiceAccounts.KeyFiles = []string{"/nonexistent"} }, "--service-account-key-file"},
		{func(o *Options) { o.Fencing = "off" }, "--fencing"},
		{func(o *Options) { o.EmbeddedEtcd.Quota = -1 }, "--embedded-etcd-quota-bytes"},
		{func(o *Options) { o.Election.LeaseDuration = 1500 * time.Millisecond }, "--leader-election-lease-duration"},
		{func(o *Options) { o.Tracing.ConfigFile = "/nonexistent" }, "tracing-config-file"},
		{func(o *Options) { o.Logs.Format = "poem" }, "logging"},
	} {
		o := New()
		c.set(o)
		err := o.Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error about %s", err, c.want)
		}
	}
}

func TestFailurePoliciesAreForAllOrForOne(t *testing.T) {
	registry, err := controllers.NewRegistry(descriptor("a"), descriptor("b"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		given []string
		a, b  controllers.Policy
		says  []string
	}{
		{given: nil, a: controllers.Restart, b: controllers.Restart},
		{given: []string{"exit"}, a: controllers.Exit, b: controllers.Exit},
		{given: []string{"a=step-down"}, a: controllers.StepDown, b: controllers.Restart},
		{given: []string{"b=restart", "exit"}, a: controllers.Exit, b: controllers.Restart},
		{given: []string{"exit", "restart"}, says: []string{"restart comes after another"}},
		{given: []string{"a=exit", "a=restart"}, says: []string{"a=restart comes after another"}},
		{given: []string{"crash", "c=exit", "b=later"}, says: []string{`"crash"`, `"c", which is not registered`, `"later" for controller "b"`}},
	} {
		o := New()
		o.FailurePolicies = c.given
		cfg, err := o.Config(registry)
		if len(c.says) == 0 && (err != nil || cfg.Policies.Of("a") != c.a || cfg.Policies.Of("b") != c.b) {
			t.Errorf("%q: %v %v %v", c.given, cfg.Policies.Of("a"), cfg.Policies.Of("b"), err)
		}
		for _, says := range c.says {
			if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "--controller-failure-policy") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v, want one line that says %s", c.given, err, says)
			}
		}
	}
}

func descriptor(name string) controllers.Descriptor {
	return controllers.Descriptor{Name: name, New: func(context.Context, controllers.Deps) (controllers.Controller, error) {
		return nil, controllers.ErrDisabled
	}}
}

func TestTheDefaultsAreTheContracts(t *testing.T) {
	o := New()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("start", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	for name, want := range map[string]string{
		"root-directory": ".regent", "shard-name": "root", "bind-address": "127.0.0.1", "secure-port": "6443",
		"advertise-address": "", "probe-port": "0", "etcd-servers": "[]", "etcd-prefix": "/registry", "shard-base-url": "",
		"enable-leader-election": "false", "leader-election-namespace": "kube-system",
		"leader-election-name": "regent-controllers", "leader-election-lease-duration": "15s",
		"leader-election-renew-deadline": "10s", "leader-election-retry-period": "2s", "controller-drain-timeout": "*",
		"service-account-issuer": "", "service-account-max-token-expiration": "24h0m0s", "service-account-key-file": "[]",
		"profiling": "false", "feature-gates": "*", "audit-policy-file": "", "tracing-config-file": "", "v": "0",
		"request-timeout": "1m0s", "max-requests-inflight": "400", "max-mutating-requests-inflight": "200", "max-requests-inflight-per-cpu": "12",
		"max-connections": "10000", "max-connections-per-client": "0", "max-watches": "20000", "max-objects-per-cluster": "0", "max-bytes-per-cluster": "0", "max-workspaces-per-cluster": "0", "max-workspace-depth": "0", "goaway-chance": "0", "shutdown-delay-duration": "0s",
		"strict-transport-security-directives": "[]", "tls-min-version": "", "tls-cipher-suites": "*",
		"tls-cert-file": "", "etcd-cafile": "", "etcd-certfile": "", "etcd-keyfile": "",
	} {
		if f := flags.Lookup(name); f == nil {
			t.Errorf("there is no flag --%s", name)
		} else if want != "*" && f.DefValue != want {
			t.Errorf("--%s defaults to %q, want %q", name, f.DefValue, want)
		}
	}
}

func TestNoCipherSuiteOfTheDefaultHasCBC(t *testing.T) {
	suites := New().Serving.CipherSuites
	if !slices.Contains(suites, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256") || !slices.Contains(suites, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256") {
		t.Errorf("%q: HTTP/2 needs TLS_ECDHE_*_WITH_AES_128_GCM_SHA256", suites)
	}
	for _, suite := range suites {
		if strings.Contains(suite, "CBC") || !strings.HasPrefix(suite, "TLS_ECDHE_") {
			t.Errorf("%s is a default", suite)
		}
	}
}

func TestTheBaseURLFollowsWhatClientsDial(t *testing.T) {
	registry, err := controllers.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set   func(*Options)
		want  string
		fixed bool
	}{
		{func(*Options) {}, "https://127.0.0.1:6443", false},
		{func(o *Options) { o.AdvertiseAddress = "10.1.2.3" }, "https://10.1.2.3:6443", false},
		{func(o *Options) { o.ExternalHostname = "a.example" }, "https://a.example:6443", false},
		{func(o *Options) { o.ShardBaseURL = "https://front:443" }, "https://front:443", true},
	} {
		o := New()
		c.set(o)
		cfg, err := o.Config(registry)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.BaseURL != c.want || cfg.FixedBaseURL != c.fixed {
			t.Errorf("base URL %s (fixed %t), want %s (%t)", cfg.BaseURL, cfg.FixedBaseURL, c.want, c.fixed)
		}
		if !filepath.IsAbs(cfg.EmbeddedEtcd.Directory) {
			t.Errorf("the embedded etcd's directory is relative: %s", cfg.EmbeddedEtcd.Directory)
		}
	}
}

// What a server is configured with is on /configz, so an option that is part of the configuration is there. Settings
// are used as they are.
func TestEveryOptionIsPartOfTheConfiguration(t *testing.T) {
	registry, err := controllers.NewRegistry(descriptor("a"))
	if err != nil {
		t.Fatal(err)
	}
	config := func(o *Options) server.Config {
		t.Helper()
		cfg, err := o.Config(registry)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	without := config(New())
	if !reflect.DeepEqual(without, config(New())) || !reflect.DeepEqual(without.Settings, New().Settings) {
		t.Fatal("the same options have different configurations, or the settings are not those of the options")
	}
	membership := func(o *Options) error {
		bundle, err := pki.Ensure(t.TempDir())
		if err != nil {
			return err
		}
		m, err := bundle.NewMembership(pki.Member{Kind: pki.KindShard, Name: "eu1"}, pki.RootShard{Name: "root", URLs: []string{"https://127.0.0.1:1"}})
		if err != nil {
			return err
		}
		content, err := m.Encode()
		if err != nil {
			return err
		}
		o.MembershipFile = filepath.Join(t.TempDir(), "membership")
		return os.WriteFile(o.MembershipFile, content, 0o600)
	}
	changes := map[string]func(*Options) error{
		"Settings":                  membership,
		"RootDirectory":             func(o *Options) error { o.RootDirectory = "/another"; return nil },
		"ReplicaName":               func(o *Options) error { o.ReplicaName = "host-a.example-6443"; return nil },
		"ShardName":                 func(o *Options) error { o.ShardName = "another"; return nil },
		"AdvertiseAddress":          func(o *Options) error { o.AdvertiseAddress = "10.1.2.3"; return nil },
		"ExternalHostname":          func(o *Options) error { o.ExternalHostname = "a.example"; return nil },
		"ShardBaseURL":              func(o *Options) error { o.ShardBaseURL = "https://front:443"; return nil },
		"ConversionWebhookNetworks": func(o *Options) error { o.ConversionWebhookNetworks = nil; return nil },
		"EmbeddedEtcd":              func(o *Options) error { o.EmbeddedEtcd.Quota = 1; return nil },
		"DefaultServiceAccounts":    func(o *Options) error { o.DefaultServiceAccounts = false; return nil },
		"FailurePolicies":           func(o *Options) error { o.FailurePolicies = []string{"a=exit"}; return nil },
		"Logs":                      nil, // the process's, not the server's: /flagz has them
		"Election":                  nil, // its fields are below
		"Election.Enabled":          func(o *Options) error { o.Election.Enabled = true; return nil },
		"Election.ModeName":         func(o *Options) error { o.Election.ModeName = string(election.ForLife{}.Name()); return nil },
		"Election.EmulationVersion": func(o *Options) error {
			o.Election.ModeName, o.Election.EmulationVersion = string(election.Coordinated{}.Name()), "0.0.1"
			return nil
		},
		"Election.Config": func(o *Options) error { o.Election.Priority = 3; return nil },
	}
	for parent, of := range map[string]reflect.Type{"": reflect.TypeFor[Options](), "Election.": reflect.TypeFor[ElectionOptions]()} {
		for field := range of.Fields() {
			if _, ok := changes[parent+field.Name]; !ok {
				t.Errorf("%s%s is not among the options whose effect this test knows", parent, field.Name)
			}
		}
	}
	for name, change := range changes {
		if change == nil {
			continue
		}
		o := New()
		if err := change(o); err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(config(o), without) {
			t.Errorf("%s changes nothing of the configuration", name)
		}
	}
}
