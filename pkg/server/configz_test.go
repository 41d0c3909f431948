package server

import (
	"encoding/json"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/webhooks"

	"k8s.io/apiserver/pkg/server/flagz"
)

// The z-pages are for operators: they say what is in force, to nobody else, and no secrets.
func TestTheZPagesSayWhatIsInForceToOperators(t *testing.T) {
	cfg := config(t, t.TempDir())
	cfg.Flags = flagz.NamedFlagSetsReader{FlagSets: cliflag.NamedFlagSets{}}
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	for path, says := range map[string]string{"/statusz": "/readyz", "/flagz": "flagz", configzPath: `"leaseDuration"`} {
		if got := r.get(t, path); got != http.StatusUnauthorized {
			t.Errorf("%s, to a stranger: %d, want 401", path, got)
		}
		got := r.ask(t, http.MethodGet, path, r.server.identity.InProcess.Replica)
		if got.status != http.StatusOK || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s, want %s", path, got.status, got.body, says)
		}
		for _, secret := range []string{r.server.identity.InProcess.Replica, r.server.identity.InProcess.Leader, "PRIVATE KEY"} {
			if strings.Contains(got.body, secret) {
				t.Errorf("%s tells a secret", path)
			}
		}
	}
	var answer map[string]map[string]any
	if err := json.Unmarshal([]byte(r.ask(t, http.MethodGet, configzPath, r.server.identity.InProcess.Replica).body), &answer); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"replica": r.server.name, "rootShard": "root", "shard": "root", "rootDirectory": cfg.RootDirectory, "baseURL": cfg.BaseURL,
		"advertiseAddress": "127.0.0.1", "probePort": 0.0, "shardCapacity": float64(clusters.DefaultCapacity), "profiling": false,
		"election.enabled": false, "election.lease": "kube-system/regent-controllers", "election.mode": "lease", "election.failureDetection": "suspect",
		"election.fencing": string(edge.FencingEnforce), "election.leaseDuration": cfg.Election.LeaseDuration.String(), "election.priority": 0.0, "election.preempt": false,
		"election.renewDeadline": cfg.Election.RenewDeadline.String(), "election.retryPeriod": cfg.Election.RetryPeriod.String(),
		"election.drainTimeout": cfg.Election.EffectiveDrainTimeout().String(), "election.detect.misses": 4.0,
		"limits.requestTimeout": "1m0s", "limits.requestPlaces": 0.0, "limits.watches": 0.0, "limits.objectsPerCluster": 0.0, "limits.bytesPerCluster": 0.0,
		"limits.connections": float64(cfg.Limits.OfConnections().InForce().Total), "limits.connectionsPerClient": float64(cfg.Limits.OfConnections().InForce().PerClient),
		"limits.hsts": []any{}, "etcd.embedded": true, "etcd.prefix": "/registry", "etcd.quota": float64(etcd.DefaultQuota),
		"files.clientCA": "", "files.tokens": "", "files.authenticationConfig": "", "files.authorizationConfig": "", "files.encryptionConfig": "",
		"serviceAccounts.issuer": "regent.dev/shards/root", "serviceAccounts.maxTokenLifetime": "24h0m0s", "controllerFailurePolicies.default": "restart",
		"shutdown.delay": "0s", "shutdown.timeout": r.server.cfg.ShutdownTimeout.Round(time.Millisecond).String(),
	} {
		if got, ok := at(answer["regent"], path); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

// at returns what is at a path of an answer.
func at(in map[string]any, path string) (value any, ok bool) {
	first, rest, deeper := strings.Cut(path, ".")
	if value, ok = in[first]; !ok || !deeper {
		return value, ok
	}
	inner, _ := value.(map[string]any)
	return at(inner, rest)
}

func TestEtcdIsShownWithoutItsPassword(t *testing.T) {
	s := &Server{}
	s.cfg.Etcd.ServerList = []string{"https://root:secret@127.0.0.1:1"}
	if got := s.configz()["etcd"].(configz)["servers"]; !reflect.DeepEqual(got, []any{"https://root:xxxxx@127.0.0.1:1"}) {
		t.Errorf("got %q", got)
	}
}

// Another value of any field is seen in the answer, or the field is one of those that are hidden for a reason.
func TestConfigzShowsEveryFieldOrSaysWhyNot(t *testing.T) {
	full := func() *Config {
		cfg := &Config{EmbeddedEtcd: &etcd.Config{}}
		cfg.Serving, cfg.Audit, cfg.Tracing = genericoptions.NewSecureServingOptions(), genericoptions.NewAuditOptions(), genericoptions.NewTracingOptions()
		return cfg
	}
	shown := func(cfg *Config) string {
		out, err := json.Marshal((&Server{cfg: *cfg}).configz())
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	without := shown(full())
	var names []string
	for _, name := range fieldsOf("", reflect.TypeFor[Config]()) {
		names = append(names, name)
		if hidden[name] != "" {
			continue
		}
		cfg := full()
		of := reflect.ValueOf(cfg).Elem()
		for part := range strings.SplitSeq(name, ".") {
			of = reflect.Indirect(of).FieldByName(part)
		}
		set(t, name, of)
		if shown(cfg) == without {
			t.Errorf("%s is not shown: say why in hidden, or show it", name)
		}
	}
	for name := range hidden {
		if !slices.Contains(names, name) {
			t.Errorf("hidden has %s, which is no field", name)
		}
	}
	for name := range shownAs {
		if !slices.ContainsFunc(names, func(field string) bool { return field == name || strings.HasPrefix(field, name+".") }) {
			t.Errorf("shownAs has %s, which is no field", name)
		}
	}
}

// fieldsOf returns the exported fields of a struct, and those in them, as hidden names them. A hidden struct counts as
// one field, and so does one that is shown as a whole.
func fieldsOf(parent string, of reflect.Type) (out []string) {
	for field := range of.Fields() {
		name, in := dotted(parent, field.Name), field.Type
		if in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		switch {
		case field.Anonymous:
			out = append(out, fieldsOf(parent, in)...)
		case !field.IsExported():
		case in.Kind() == reflect.Struct && hidden[name] == "" && in != reflect.TypeFor[webhooks.Networks]() && in != reflect.TypeFor[controllers.Policies]():
			out = append(out, fieldsOf(name, in)...)
		default:
			out = append(out, name)
		}
	}
	return out
}

// set gives a field a value that it does not have by default.
func set(t *testing.T, name string, of reflect.Value) {
	t.Helper()
	switch value := of.Addr().Interface().(type) {
	case *webhooks.Networks:
		*value, _ = webhooks.ParseNetworks([]string{"10.1.0.0/16"})
		return
	case *controllers.Policies:
		*value = controllers.Policies{Controllers: map[string]controllers.Policy{"one": controllers.Exit}}
		return
	case *election.Mode:
		*value = election.ForLife{}
		return
	case *net.IP:
		*value = net.IPv4(10, 1, 2, 3)
		return
	case *time.Duration:
		*value += 7 * time.Millisecond
		return
	case *edge.Fencing:
		*value = edge.FencingWarn
		return
	case *[]cliflag.NamedCertKey:
		*value = []cliflag.NamedCertKey{{CertFile: "one"}}
		return
	}
	switch of.Kind() {
	case reflect.String:
		of.SetString("another")
	case reflect.Bool:
		of.SetBool(!of.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		of.SetInt(of.Int() + 3) // small: connections are bounded by what the process may open
	case reflect.Float32, reflect.Float64:
		of.SetFloat(0.5)
	case reflect.Slice:
		of.Set(reflect.MakeSlice(of.Type(), 1, 1))
	default:
		t.Fatalf("%s is a %s, of which this test makes none: say in hidden why it is not shown", name, of.Type())
	}
}
