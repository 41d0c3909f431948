package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/internal/host"
)

// Config says under which Lease to lead, and how other replicas notice that this process has died. Namespace and Name
// are required. All replicas should have the same, but for the addresses.
type Config struct {
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// Cluster is the name of the Lease's logical cluster, if the server has such, and not its path: root, or as in
	// x5k2m7qa3bcd4efg. The rest.Config must lead there.
	Cluster logicalcluster.Name
	// Replica and ReplicasDirectory are as in election.Config. ReplicasDirectory is for replicas on one machine.
	Replica, ReplicasDirectory string
	// Fenced says that the server refuses each write of a term that is over: it is a Regent server, or has package
	// etcdfence. kube-apiserver is neither. Standbys then lead at once if the leader's process is dead, and soon if
	// it is silent. The server has to prove it: before this process campaigns, it makes a dry run of creating the
	// Lease with the token of a term that never was. If that is not refused, Run ends with an error.
	//
	// That proves nothing of this program's own writes. One without a token is served as ever, unless the server
	// demands tokens of its user (a Regent server does of its own controllers, others by
	// etcdfence.Config.MustCarry). So make each client that writes in a term with ForTerm.
	Fenced bool
	// SucceedUnfenced is for other servers, such as kube-apiserver. Standbys then lead within milliseconds after a
	// crash. The risk is that two leaders work at once: mostly for milliseconds, and for LeaseDuration at worst;
	// see election.Config. All replicas must have it. Without either field a crash costs the rest of the lease.
	SucceedUnfenced bool
	// LeaseDuration, RenewDeadline, RetryPeriod and DrainTimeout are as in election.Config. 0 stands for 15 s, 10 s
	// and 2 s, and for the smaller of 5 s and half of the renew deadline.
	LeaseDuration, RenewDeadline, RetryPeriod, DrainTimeout time.Duration

	// SecretName, SecretFile or SecretBytes, at most one of them, is the secret that all replicas know and nobody
	// else. With it this process has a probe, by which standbys notice its death at once. They lead before the
	// lease has expired only with Fenced or SucceedUnfenced.
	//
	// SecretName is the name of a Secret in Namespace, which holds it under the key "probe-secret". The first
	// replica creates it. Until it can be read, this process does not campaign, and says why in its log. SecretFile
	// is a file that has it. It has at least 16 bytes; white space around it in a file does not count.
	SecretName, SecretFile string
	SecretBytes            []byte
	// AdvertiseAddress is the IP address or host name by which other replicas dial this process. Empty: the
	// environment's POD_IP; or else the address from which this machine reaches the server, or its first other one
	// that is no loopback address; or else the loopback address, which is right if all replicas run here.
	AdvertiseAddress string
	// BindAddress is the IP address on which the probe listens. Empty: that of AdvertiseAddress if this machine has
	// it, otherwise all. ProbePort is its port; 0: any free one. Network policies must let replicas reach each
	// other there.
	BindAddress string
	ProbePort   int
	// Detection is as in election.Config. DetectOff: no probe.
	Detection election.Detection

	// Ready, if set, is called before this process campaigns. It returns when the process can lead, for example
	// when its caches are synced, or when ctx has ended. With an error Run ends.
	Ready func(ctx context.Context) error
	// Adjust, if set, changes what follows from the fields above, such as Mode, Priority or Notify. For a
	// server whose Leases are in an etcd of its own, it sets Client to what etcdfence.Guard.LeaseClient has
	// returned.
	Adjust func(*election.Config)
}

// probes reports whether this process has a probe.
func (c Config) probes() bool {
	return c.Detection != election.DetectOff && c.secretSources() > 0
}

func (c Config) secretSources() (n int) {
	for _, given := range []bool{c.SecretName != "", c.SecretFile != "", c.SecretBytes != nil} {
		if given {
			n++
		}
	}
	return n
}

// validate returns everything that is wrong with what is not in an election.Config.
func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("leader: Config."+format, args...))
	}
	switch {
	case c.secretSources() > 1:
		fault("SecretName, SecretFile and SecretBytes exclude each other: give one of them")
	case c.SecretName != "" && len(validation.IsDNS1123Subdomain(c.SecretName)) > 0:
		fault("SecretName %q is not the name of a Secret: %s", c.SecretName, validation.IsDNS1123Subdomain(c.SecretName))
	case c.SecretBytes != nil && len(c.SecretBytes) < shortestSecret:
		fault("SecretBytes has %d bytes: it must have %d at least, or it could be guessed", len(c.SecretBytes), shortestSecret)
	case c.secretSources() == 0 && (c.SucceedUnfenced || c.Detection != "" && c.Detection != election.DetectOff):
		fault("SecretName, SecretFile or SecretBytes is required by SucceedUnfenced and Detection: without a secret there is no probe")
	case c.Detection == election.DetectOff && c.SucceedUnfenced:
		fault("SucceedUnfenced contradicts Detection %q", c.Detection)
	}
	if c.AdvertiseAddress != "" {
		if err := host.Check(c.AdvertiseAddress); err != nil {
			fault("AdvertiseAddress %q %w", c.AdvertiseAddress, err)
		}
	}
	if _, err := netip.ParseAddr(c.BindAddress); err != nil && c.BindAddress != "" {
		fault("BindAddress %q must be an IP address of this machine: %w", c.BindAddress, err)
	}
	if c.ProbePort < 0 || c.ProbePort > 65535 {
		fault("ProbePort %d must be between 0 and 65535", c.ProbePort)
	}
	return errors.Join(faults...)
}

// election returns the election.Config without clients and Detector.
func (c Config) election() election.Config {
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Cluster = c.Namespace, c.Name, c.Cluster
	cfg.Replica, cfg.ReplicasDirectory = c.Replica, c.ReplicasDirectory
	cfg.Fenced, cfg.SucceedUnfenced, cfg.Detection = c.Fenced, c.SucceedUnfenced, c.Detection
	cfg.LeaseDuration = cmp.Or(c.LeaseDuration, cfg.LeaseDuration)
	cfg.RenewDeadline = cmp.Or(c.RenewDeadline, cfg.RenewDeadline)
	cfg.RetryPeriod, cfg.DrainTimeout = cmp.Or(c.RetryPeriod, cfg.RetryPeriod), c.DrainTimeout
	return cfg
}

// listen returns where the probe listens if others dial it at that host.
func (c Config) listen(advertised string, own func(netip.Addr) bool) string {
	bind := c.BindAddress
	if ip, err := netip.ParseAddr(advertised); bind == "" && err == nil && own(ip) {
		bind = advertised
	}
	return net.JoinHostPort(bind, strconv.Itoa(c.ProbePort))
}
