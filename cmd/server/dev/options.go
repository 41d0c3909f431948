package dev

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"
)

// Options are the values of the flags of `dev`.
type Options struct {
	// RootDirectory holds everything: keys, kubeconfig and etcd's data.
	RootDirectory string
	// SecurePort is the balancer's port. The ports of the fronts and replicas follow it.
	SecurePort int
	// Replicas is the number of replicas of each shard, Shards the number of shards.
	Replicas, Shards int
	// Program is what replicas run with the flags of `start`. Empty: this program.
	Program string
	// Verbose shows the replicas' whole logs, which are in files anyway.
	Verbose bool
	// Start are further flags of `start` for every replica.
	Start []string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{RootDirectory: ".regent", SecurePort: 6443, Replicas: 2, Shards: 1}
}

// Own are the flags of `start` that dev sets for each replica.
var Own = []string{
	"root-directory", "membership", "shard-name", "replica-name", "secure-port", "shard-base-url", "etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix", "enable-leader-election", "bind-address",
}

// AddFlags adds the flags that set o.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory, "Directory for keys, admin.kubeconfig, logs and etcd's data. Shards after the first have directories of their own below it.")
	flags.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "Loopback port at which users reach everything. The next ones are the fronts', if there are several shards, and the replicas'.")
	flags.BoolVarP(&o.Verbose, "verbose", "v", o.Verbose, "Show the whole logs of all replicas, which are in <root-directory>/logs. Otherwise: which replica leads and why that changed, what dies and is ready again, what is wrong for some seconds, warnings and errors.")
	flags.IntVar(&o.Replicas, "replicas", o.Replicas, "Number of replicas of each shard.")
	flags.StringVar(&o.Program, "program", o.Program, "What replicas run, with start and its flags: your program that embeds the server, with controllers of your own. It must end when it gets SIGTERM, which it also gets if dev is killed (on Linux). Default: this program.")
	flags.IntVar(&o.Shards, "shards", o.Shards, "Number of shards. Several are one installation: each has an etcd of its own, and two fronts lead to them.")
}

// most is how many replicas or shards make sense on one machine.
const most = 16

// Validate returns all faults, one line each, with the name of the flag. It starts nothing.
func (o *Options) Validate() error {
	var errs []error
	if o.RootDirectory == "" {
		errs = append(errs, errors.New("--root-directory must not be empty"))
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"--replicas", o.Replicas}, {"--shards", o.Shards}} {
		if n.value < 1 || n.value > most {
			errs = append(errs, fmt.Errorf("%s %d must be between 1 and %d", n.flag, n.value, most))
		}
	}
	if o.Program != "" {
		if _, err := exec.LookPath(o.Program); err != nil {
			errs = append(errs, fmt.Errorf("--program %s cannot be run: %w", o.Program, err))
		}
	}
	if len(errs) == 0 {
		if last := o.afterLast() - 1; o.SecurePort < 1 || last > 65535 {
			errs = append(errs, fmt.Errorf("--secure-port %d: the ports up to %d are needed, and must be between 1 and 65535", o.SecurePort, last))
		}
	}
	return errors.Join(errs...)
}

// fronts is how many `regent front` an installation has on this machine. A lone shard needs none.
func (o *Options) fronts() int {
	if o.Shards > 1 {
		return 2
	}
	return 0
}

// The ports are consecutive: the balancer's, then the fronts', then the replicas'.
func (o *Options) front(n int) int { return o.SecurePort + 1 + n }
func (o *Options) replica(shard, replica int) int {
	return o.front(o.fronts()) + shard*o.Replicas + replica
}
func (o *Options) afterLast() int { return o.replica(o.Shards, 0) }

// shardName returns the name of a shard. The first one is root.
func shardName(shard int) string {
	if shard == 0 {
		return "root"
	}
	return fmt.Sprintf("shard-%d", shard)
}

// shardDirectory returns the root directory of a shard's replicas. Its etcd is there, too.
func (o *Options) shardDirectory(shard int) string {
	if shard == 0 {
		return o.RootDirectory
	}
	return filepath.Join(o.RootDirectory, shardName(shard))
}

// logs is the directory with the whole logs of all processes.
func (o *Options) logs() string { return filepath.Join(o.RootDirectory, "logs") }

func url(port int) string { return "https://" + address(port) }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// portsFree returns an error if another process listens on one of the ports that dev needs.
func (o *Options) portsFree() error {
	var errs []error
	for port := o.SecurePort; port < o.afterLast(); port++ {
		listener, err := net.Listen("tcp", address(port))
		if err != nil {
			errs = append(errs, fmt.Errorf("port %d is not free: end what listens on it, or give another --secure-port: %w", port, err))
			continue
		}
		_ = listener.Close()
	}
	return errors.Join(errs...)
}
