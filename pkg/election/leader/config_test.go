package leader_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/leader"
)

// What is wrong is an error of New that names the field of the Config, and no flag.
func TestAFaultyConfigIsAnErrorThatNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*leader.Config){
		"Namespace":     func(cfg *leader.Config) { cfg.Namespace = "" },
		"Name":          func(cfg *leader.Config) { cfg.Name = "Not A Name" },
		"LeaseDuration": func(cfg *leader.Config) { cfg.LeaseDuration = 1500 * time.Millisecond },
		"RenewDeadline": func(cfg *leader.Config) { cfg.RenewDeadline = time.Hour },
		"RetryPeriod":   func(cfg *leader.Config) { cfg.RetryPeriod = -time.Second },
		"DrainTimeout":  func(cfg *leader.Config) { cfg.DrainTimeout = time.Hour },
		"Detection":     func(cfg *leader.Config) { cfg.Detection = "perhaps" },
		"SecretName":    func(cfg *leader.Config) { cfg.SecretName = "Not A Name" },
		"SecretFile":    func(cfg *leader.Config) { cfg.SecretFile = "also" },
		"SecretBytes": func(cfg *leader.Config) {
			cfg.SecretName, cfg.SecretBytes = "", []byte("short")
		},
		"SucceedUnfenced": func(cfg *leader.Config) { cfg.SecretName, cfg.SucceedUnfenced = "", true },
		"AdvertiseAddress \"<nil>\" is what a net.IP without a value says": func(cfg *leader.Config) {
			var ip net.IP
			cfg.AdvertiseAddress = ip.String()
		},
		"AdvertiseAddress": func(cfg *leader.Config) { cfg.AdvertiseAddress = "0.0.0.0" },
		"BindAddress":      func(cfg *leader.Config) { cfg.BindAddress = "host:1" },
		"ProbePort":        func(cfg *leader.Config) { cfg.ProbePort = 70000 },
		"Mode": func(cfg *leader.Config) { // by Adjust
			cfg.SucceedUnfenced, cfg.Adjust = true, func(e *election.Config) { e.Mode = election.ForLife{} }
		},
		"Replica": func(cfg *leader.Config) { cfg.Replica = "line\nbreak" },
		"Cluster": func(cfg *leader.Config) { cfg.Cluster = "root:team" }, // the path of one
	} {
		t.Run(field, func(t *testing.T) {
			cfg := config()
			change(&cfg)
			_, err := leader.New(&rest.Config{Host: "https://127.0.0.1:6443"}, cfg)
			if err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "--") {
				t.Errorf("error %v, want one that names %s", err, field)
			}
		})
	}
}

func TestAFaultyRestConfigIsAnError(t *testing.T) {
	for name, faulty := range map[string]*rest.Config{
		"none":                 nil,
		"without such a file":  {Host: "https://127.0.0.1:6443", TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"}},
		"with a faulty server": {Host: "https://a b"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := leader.New(faulty, config()); err == nil || !strings.Contains(err.Error(), "rest.Config") {
				t.Errorf("error %v, want one that names the rest.Config", err)
			}
		})
	}
}
