package regenttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Option changes what Start and Main start.
type Option func(*options)

type options struct {
	shards, replicas int
	flags            []string
	program          string
	programGiven     bool
}

// most is how many shards, or replicas of a shard, make sense on one machine.
const most = 16

// Shards is how many shards there are, each with an etcd of its own: by default one. Several are one installation, and
// clients reach it through a front.
func Shards(n int) Option { return func(o *options) { o.shards = n } }

// Replicas is how many replicas each shard has: by default one. One of several leads, and the others serve beside it.
func Replicas(n int) Option { return func(o *options) { o.replicas = n } }

// Flags are further flags of regent start for all replicas, as in "--leader-election-lease-duration=4s". What each
// replica is given anyway (where it listens, its etcd, its shard) cannot be among them.
func Flags(flags ...string) Option {
	return func(o *options) { o.flags = append(o.flags, flags...) }
}

// Program is the file of the program regent.
func Program(file string) Option {
	return func(o *options) { o.program, o.programGiven = file, true }
}

// own are the flags that each replica is given.
var own = []string{
	"root-directory", "shard-name", "replica-name", "secure-port", "bind-address", "advertise-address", "shard-base-url", "membership", "enable-leader-election",
	"etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix",
}

func newOptions(all []Option) (options, error) {
	o := options{shards: 1, replicas: 1}
	for _, option := range all {
		option(&o)
	}
	return o, o.validate()
}

// validate returns all that is wrong, a line each.
func (o *options) validate() error {
	var errs []error
	for _, n := range []struct {
		option string
		value  int
	}{{"Shards", o.shards}, {"Replicas", o.replicas}} {
		if n.value < 1 || n.value > most {
			errs = append(errs, fmt.Errorf("regenttest.%s(%d): it must be between 1 and %d", n.option, n.value, most))
		}
	}
	for _, flag := range o.flags {
		name, _, hasValue := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		switch {
		case !strings.HasPrefix(flag, "--") || name == "":
			errs = append(errs, fmt.Errorf("regenttest.Flags(%q): give flags as --name=value, each with its value in the same string", flag))
		case slices.Contains(own, name):
			errs = append(errs, fmt.Errorf("regenttest.Flags(%q): regenttest sets it for each replica: leave it out", flag))
		case !hasValue && strings.Contains(flag, " "):
			errs = append(errs, fmt.Errorf("regenttest.Flags(%q): give flags as --name=value", flag))
		}
	}
	if o.programGiven && o.program == "" {
		errs = append(errs, errors.New(`regenttest.Program(""): name the file of regent, or leave the option out`))
	}
	return errors.Join(errs...)
}
