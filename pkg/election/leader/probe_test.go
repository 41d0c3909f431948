package leader_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/leader"
)

// An Elector that somebody else has made follows the leader's process as well.
func TestAProbeCanBeHadAlone(t *testing.T) {
	s := newServer(t)
	ctx, stop := context.WithCancel(t.Context())
	var electors []*election.Elector
	var ended []chan error
	var closes []func()
	for _, name := range []string{"a", "b"} {
		of := config()
		of.Replica = name
		probe, err := leader.OpenProbe(ctx, s.config, of)
		if err != nil {
			t.Fatal(err)
		}
		cfg := election.DefaultConfig()
		cfg.Namespace, cfg.Name, cfg.Replica = of.Namespace, of.Name, name
		cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod = of.LeaseDuration, of.RenewDeadline, of.RetryPeriod
		cfg.Client, cfg.Detector = s.store.Client(), probe
		elector, err := election.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			done <- elector.Run(ctx, func(ctx context.Context, _ election.Term) error { <-ctx.Done(); return nil })
		}()
		electors, ended, closes = append(electors, elector), append(ended, done), append(closes, probe.Close)
	}
	eventually(t, "one leads, and the other hears its process", func() bool {
		for n, e := range electors {
			if contact := electors[1-n].Status().Contact; e.Status().State == "leading" && contact != nil && contact.State == "alive" {
				return true
			}
		}
		return false
	})
	stop()
	for n := range electors {
		<-ended[n]
		closes[n]()
	}
}

func TestAProbeAloneNeedsASecretAndAName(t *testing.T) {
	for field, change := range map[string]func(*leader.Config){
		"SecretName": func(cfg *leader.Config) { cfg.SecretName = "" },
		"Replica":    func(cfg *leader.Config) { cfg.Replica = "" },
		"ProbePort":  func(cfg *leader.Config) { cfg.ProbePort = -1 },
	} {
		cfg := config()
		cfg.Replica = "a"
		change(&cfg)
		if _, err := leader.OpenProbe(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
