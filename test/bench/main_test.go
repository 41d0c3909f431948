package bench

import (
	"flag"
	"os"
	"testing"
	"time"
)

// How often everything is measured. A few of each take less than a minute, but for what waits for a lease to expire.
var (
	kills            = flag.Int("kills", 200, "how many of our leaders to kill")
	stops            = flag.Int("stops", 200, "how many of our leaders to ask to stop, by SIGTERM")
	peers            = flag.Int("peers", 10, "how many of each peer's leaders to kill, and how many to ask to stop")
	modesFlag        = flag.Int("modes", 20, "how many of our leaders to kill, and how many to ask to stop, in each mode of election")
	records          = flag.Int("records", 20, "how many of our leaders to kill, without a record of earlier terms and with a full one each")
	hangs            = flag.Int("hangs", 50, "how many of our leaders to stop, where standbys suspect whoever is silent")
	expiries         = flag.Int("expiries", 5, "how many of our leaders to stop, where standbys wait until the lease expires")
	victimsFlag      = flag.Int("victims", 20, "how many of our leaders to kill, with each amount of memory")
	cutsFlag         = flag.Int("cuts", 3, "how often to cut each network of a leader, in each mode of detection")
	needlessFor      = flag.Duration("needless-for", 30*time.Minute, "how long each trouble lasts that must cause no takeover")
	handovers        = flag.Int("handovers", 500, "how often two replicas that live on hand over to each other")
	failovers        = flag.Int("failovers", 20, "how many leaders to kill while users ask")
	before           = flag.Duration("before", time.Minute, "how long the users ask before each of them, for comparison")
	vanishes         = flag.Int("vanishes", 50, "how many leaders to cut off from everything, with default flags")
	memberKills      = flag.Int("member-kills", 20, "how often to kill a member of etcd, each in turn")
	memberSize       = flag.Int("member-size", 100000, "how many workspaces are in the shard whose etcd loses members")
	move             = flag.Bool("move", false, "the users of the killed replica come to the survivor, until it is back")
	saturation       = flag.Duration("saturation", 15*time.Second, "for how long to look how many requests the machine sustains")
	needlessTogether = flag.Bool("needless-together", false, "troubles that must cause no takeover are made at the same time")
	verbFor          = flag.Duration("verb-for", 5*time.Second, "for how long to make requests of each verb, in each round")
	verbProfiles     = flag.String("verb-profiles", "", "a directory for CPU profiles of the replica, one for each verb: of the last round")
	verbRounds       = flag.Int("verb-rounds", 5, "how often to do so at each of the two servers")
	backupFor        = flag.Duration("backup-for", 10*time.Second, "for how long to write in each turn, with a backup that follows and without one")
	backupRounds     = flag.Int("backup-rounds", 20, "how many turns of each")
	backupProfiles   = flag.String("backup-profiles", "", "a directory for a CPU profile of the replica that is followed: of the last turn")
	idle             = flag.Duration("idle", 3*time.Minute, "for how long to look at replicas that have nothing to do")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}
