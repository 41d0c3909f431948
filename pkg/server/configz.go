package server

import (
	"cmp"
	"encoding"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"time"
	"unicode"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/detect"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/identity"
)

// configzPath is where a replica shows its configuration, as Kubernetes' components do. Flags as they were given are at
// /flagz.
const configzPath = "/configz"

// configz is what is in force: with defaults, and with limits computed from this machine. It has names of files,
// and none of their contents. It is made of Config's fields: a new one is shown unless it is in hidden.
type configz map[string]any

// shownAs says where fields are shown that are not shown under their own name.
var shownAs = map[string]string{
	"Capacity":                 "shardCapacity",
	"Advertise":                "advertiseAddress",
	"MembershipFile":           "files.membership",
	"ClientCAFile":             "files.clientCA",
	"TokenFile":                "files.tokens",
	"AuthenticationConfigFile": "files.authenticationConfig",
	"AuthorizationConfigFile":  "files.authorizationConfig",
	"EncryptionConfigFile":     "files.encryptionConfig",
	"EmbeddedEtcd":             "etcd",
	"Etcd.ServerList":          "etcd.servers",
	"EtcdPrefix":               "etcd.prefix",
	"EnableLeaderElection":     "election.enabled",
	"Election.Detection":       "election.failureDetection",
	"Detect":                   "election.detect",
	"Fencing":                  "election.fencing",
	"Policies":                 "controllerFailurePolicies",
	"ShutdownDelay":            "shutdown.delay",
	"ShutdownTimeout":          "shutdown.timeout",
	"Limits.CPUs":              "limits.cpus",
}

// hidden says why fields are hidden.
var hidden = map[string]string{
	"Membership":                       "has a key; rootShard and files.membership tell of it",
	"Registry":                         "code; /regent/v1/replica tells of controllers",
	"Flags":                            "/flagz shows them",
	"Docs":                             "/ui/docs/ shows them",
	"Serving.Listener":                 "open already",
	"Serving.ServerCert.GeneratedCert": "has a key",
	"Etcd.EgressLookup":                "never set",
	"Etcd.TracerProvider":              "never set",
	"Detect.Name":                      "set by the server, as election.lease",
	"Detect.Replica":                   "set by the server, as replica",
	"Detect.Listen":                    "set by the server, from serving.bindAddress and probePort",
	"Detect.Advertise":                 "set by the server, as advertiseAddress",
	"Detect.Changed":                   "set by the server",
	"Election.Cluster":                 "set by the server, always the same",
	"Election.ForgetCommand":           "set by the server, always the same",
	"Election.ReplicasDirectory":       "set by the server, below rootDirectory",
	"Election.Replica":                 "set by the server, as replica",
	"Election.Instance":                "set by the server, new with each process",
	"Election.URL":                     "set by the server, from advertiseAddress",
	"Election.Fenced":                  "set by the server, from election.fencing",
	"Election.Candidates":              "set by the server",
	"Election.Client":                  "set by the server",
	"Election.Detector":                "set by the server",
	"Election.Notify":                  "set by the server",
	"Election.Assigned":                "code; no flag sets it",
	"Election.Changed":                 "set by the server",
	"Election.Election":                "never set",
}

// ServeHTTP implements http.Handler.
func (c configz) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(map[string]configz{"regent": c}) // on an error the client has gone
}

func (s *Server) configz() configz {
	cfg, c := s.cfg.inForce(), configz{}
	c.addFields("", "", reflect.ValueOf(cfg))
	c.set("rootShard", cfg.rootShard())
	c.set("etcd.embedded", cfg.EmbeddedEtcd != nil)
	c.set("election.lease", cfg.Election.Namespace+"/"+cfg.Election.Name)
	if mode, ok := cfg.Election.Mode.(election.Coordinated); ok {
		c.set("election.emulationVersion", mode.EmulationVersion)
	}
	c.set("limits.requestPlaces", cfg.Limits.Places())
	return c
}

// inForce returns the configuration with what its zero values stand for.
func (c Config) inForce() Config {
	c.Capacity = cmp.Or(c.Capacity, clusters.DefaultCapacity)
	c.Limits.CPUs = cmp.Or(c.Limits.CPUs, runtime.GOMAXPROCS(0))
	connections := c.Limits.OfConnections().InForce()
	c.Limits.Connections, c.Limits.ConnectionsPerClient = connections.Total, connections.PerClient
	c.ServiceAccounts.Issuer = c.ServiceAccounts.IssuerOf(c.Shard)
	c.ServiceAccounts.MaxTokenLifetime = cmp.Or(c.ServiceAccounts.MaxTokenLifetime, identity.DefaultMaxTokenLifetime)
	if c.EmbeddedEtcd != nil {
		embedded := *c.EmbeddedEtcd
		embedded.Quota = cmp.Or(embedded.Quota, etcd.DefaultQuota)
		c.EmbeddedEtcd = &embedded
	}
	c.Fencing = cmp.Or(c.Fencing, edge.FencingEnforce)
	e := &c.Election
	e.Fenced = c.Fencing != edge.FencingWarn
	if e.Mode == nil {
		e.Mode = election.Renewed{}
	}
	e.Detection, e.DrainTimeout = e.EffectiveDetection(), e.EffectiveDrainTimeout()
	c.Detect.Interval = cmp.Or(c.Detect.Interval, detect.DefaultConfig().Interval)
	c.Detect.Misses = cmp.Or(c.Detect.Misses, detect.DefaultConfig().Misses)
	c.ShutdownTimeout = c.ShutdownTimeout.Round(time.Millisecond)
	return c
}

// addFields adds the fields of a struct that is the field of a name, and is shown at a path.
func (c configz) addFields(name, path string, of reflect.Value) {
	for i := range of.NumField() {
		field, value := of.Type().Field(i), of.Field(i)
		if field.Anonymous {
			c.addFields(name, path, value)
			continue
		}
		if full := dotted(name, field.Name); field.IsExported() && hidden[full] == "" {
			c.addValue(full, cmp.Or(shownAs[full], dotted(path, lowerCamel(field.Name))), value)
		}
	}
}

// addValue adds the value of the field of a name at a path. It does not look into functions and interfaces that it does
// not know.
func (c configz) addValue(name, path string, of reflect.Value) {
	of = reflect.Indirect(of)
	if !of.IsValid() {
		return // a nil pointer
	}
	switch value := of.Interface().(type) {
	case json.Marshaler, encoding.TextMarshaler:
		c.set(path, value)
		return
	case time.Duration:
		c.set(path, value.String())
		return
	case election.Mode:
		c.set(path, value.Name())
		return
	case controllers.Policies:
		policies := map[string]controllers.Policy{"default": value.Of("")}
		maps.Copy(policies, value.Controllers)
		c.set(path, policies)
		return
	}
	switch of.Kind() {
	case reflect.Struct:
		c.addFields(name, path, of)
	case reflect.String:
		c.set(path, WithoutPassword(of.String()))
	case reflect.Slice:
		list := []any{}
		for _, element := range of.Seq2() {
			one := configz{}
			one.addValue(name, "element", element)
			list = append(list, one["element"])
		}
		c.set(path, list)
	case reflect.Func, reflect.Interface:
	default:
		c.set(path, of.Interface())
	}
}

// set sets what is shown at a path.
func (c configz) set(path string, value any) {
	first, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		c[first] = value
		return
	}
	inner, ok := c[first].(configz)
	if !ok {
		inner = configz{}
		c[first] = inner
	}
	inner.set(rest, value)
}

// dotted returns the path of what is below another one.
func dotted(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// lowerCamel returns the name of a field as JSON has it: hsts for HSTS, baseURL for BaseURL, minTLSVersion for
// MinTLSVersion.
func lowerCamel(name string) string {
	upper := len(name) - len(strings.TrimLeftFunc(name, unicode.IsUpper))
	if upper > 1 && upper < len(name) && unicode.IsLower(rune(name[upper])) {
		upper-- // the first letter of the next word
	}
	return strings.ToLower(name[:upper]) + name[upper:]
}

// WithoutPassword returns a URL with xxxxx instead of its password, if it has one. Other texts are returned as they
// are.
func WithoutPassword(text string) string {
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return u.Redacted()
	}
	return text
}
