package server

import "github.com/regent-project/regent/pkg/election"

// defaultElection is the election of `regent start`.
func defaultElection() election.Config {
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name = "kube-system", "regent-controllers"
	return cfg
}
