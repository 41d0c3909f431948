package server

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/edge"
)

// configzPath is where a replica shows its configuration, as Kubernetes' components do. Flags as they were given are at
// /flagz.
const configzPath = "/configz"

// shownConfig is what is in force: with defaults, and with limits computed from this machine. It has names of files,
// and none of their contents.
type shownConfig struct {
	Shard         string `json:"shard"`
	Replica       string `json:"replica"`
	RootShard     string `json:"rootShard"`
	RootDirectory string `json:"rootDirectory"`
	BaseURL       string `json:"baseURL"`
	Advertise     string `json:"advertiseAddress"`
	ProbePort     int    `json:"probePort"`
	Etcd          struct {
		Embedded bool     `json:"embedded"`
		Servers  []string `json:"servers,omitempty"`
		Prefix   string   `json:"prefix"`
	} `json:"etcd"`
	Election shownElection `json:"election"`
	Limits   shownLimits   `json:"limits"`
	Files    shownFiles    `json:"files"`
	// Policies are those of single controllers, and "default".
	Policies map[string]controllers.Policy `json:"controllerFailurePolicies"`
	Shutdown struct {
		Delay   string `json:"delay"`
		Timeout string `json:"timeout"`
	} `json:"shutdown"`
}

type shownElection struct {
	Enabled       bool              `json:"enabled"`
	Lease         string            `json:"lease"`
	Mode          election.ModeName `json:"mode"`
	LeaseDuration string            `json:"leaseDuration"`
	RenewDeadline string            `json:"renewDeadline"`
	RetryPeriod   string            `json:"retryPeriod"`
	DrainTimeout  string            `json:"drainTimeout"`
	Priority      int32             `json:"priority"`
	Preempt       bool              `json:"preempt"`
	Detection     string            `json:"failureDetection"`
	Fencing       edge.Fencing      `json:"fencing"`
}

type shownLimits struct {
	RequestTimeout       string `json:"requestTimeout"`
	Places               int    `json:"requestPlaces"`
	Connections          int    `json:"connections"`
	ConnectionsPerClient int    `json:"connectionsPerClient"`
	Watches              int    `json:"watches"`
	ObjectsPerCluster    int64  `json:"objectsPerCluster"`
	BytesPerCluster      int64  `json:"bytesPerCluster"`
}

type shownFiles struct {
	ClientCA             string `json:"clientCA,omitempty"`
	Tokens               string `json:"tokens,omitempty"`
	AuthenticationConfig string `json:"authenticationConfig,omitempty"`
	AuthorizationConfig  string `json:"authorizationConfig,omitempty"`
	EncryptionConfig     string `json:"encryptionConfig,omitempty"`
}

// ServeHTTP implements http.Handler.
func (c shownConfig) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(map[string]shownConfig{"regent": c}) // on an error the client has gone
}

func (s *Server) shownConfig() shownConfig {
	c, e := s.cfg, s.cfg.Election
	e.Fenced = c.Fencing != edge.FencingWarn
	if e.Mode == nil {
		e.Mode = election.Renewed{}
	}
	out := shownConfig{
		Shard: c.Shard, Replica: s.name, RootShard: c.rootShard(), RootDirectory: c.RootDirectory, BaseURL: c.BaseURL,
		Advertise: c.Advertise.String(), ProbePort: c.ProbePort,
		Election: shownElection{
			Enabled: c.EnableLeaderElection, Lease: e.Namespace + "/" + e.Name, Mode: e.Mode.Name(),
			LeaseDuration: e.LeaseDuration.String(), RenewDeadline: e.RenewDeadline.String(), RetryPeriod: e.RetryPeriod.String(),
			DrainTimeout: e.EffectiveDrainTimeout().String(), Priority: e.Priority, Preempt: e.Preempt,
			Detection: string(e.EffectiveDetection()), Fencing: cmp.Or(c.Fencing, edge.FencingEnforce),
		},
		Limits: showLimits(c.Limits),
		Files: shownFiles{
			ClientCA: c.ClientCAFile, Tokens: c.TokenFile, AuthenticationConfig: c.AuthenticationConfigFile,
			AuthorizationConfig: c.AuthorizationConfigFile, EncryptionConfig: c.EncryptionConfigFile,
		},
		Policies: map[string]controllers.Policy{"default": c.Policies.Of("")},
	}
	maps.Copy(out.Policies, c.Policies.Controllers)
	out.Etcd.Embedded, out.Etcd.Prefix = c.EmbeddedEtcd != nil, c.EtcdPrefix
	for _, server := range c.Etcd.ServerList {
		out.Etcd.Servers = append(out.Etcd.Servers, WithoutPassword(server))
	}
	out.Shutdown.Delay, out.Shutdown.Timeout = c.ShutdownDelay.String(), c.ShutdownTimeout.Round(time.Millisecond).String()
	return out
}

func showLimits(l edge.Limits) shownLimits {
	return shownLimits{
		RequestTimeout: l.RequestTimeout.String(), Places: l.Places(), Connections: l.Connections, ConnectionsPerClient: l.ConnectionsPerClient,
		Watches: l.Watches, ObjectsPerCluster: l.ObjectsPerCluster, BytesPerCluster: l.BytesPerCluster,
	}
}

// WithoutPassword returns a URL with xxxxx instead of its password, if it has one. Other texts are returned as they
// are.
func WithoutPassword(text string) string {
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return u.Redacted()
	}
	return text
}
