package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/clientgo"
	"github.com/regent-project/regent/pkg/election/detect"
)

// dropIn is package clientgo in place of client-go's elector, and perhaps a probe.
type dropIn struct {
	use                       bool
	advertise, listen, secret string
}

// run leads in terms until ctx ends.
func (d dropIn) run(ctx context.Context, lec leaderelection.LeaderElectionConfig) error {
	with := func(*election.Config) {}
	if d.advertise != "" {
		probe, err := detect.New(detect.Config{Name: lec.Lock.Describe(), Replica: lec.Lock.Identity(), Listen: d.listen, Advertise: d.advertise})
		if err != nil {
			return err
		}
		if err := probe.Open(ctx, []byte(d.secret)); err != nil {
			return fmt.Errorf("cannot open the probe: %w", err)
		}
		defer probe.Close()
		with = func(cfg *election.Config) { cfg.Detector, cfg.SucceedUnfenced = probe, true }
	}
	elector, err := clientgo.NewLeaderElector(lec, with) //nolint:contextcheck // it starts nothing
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		elector.Run(ctx)
	}
	return nil
}
