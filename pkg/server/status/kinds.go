package status

// kind is the word by which programs know a problem: Problem.Kind. docs/OPERATIONS.md lists them.
type kind string

const (
	kindShardSilent      kind = "shard-silent"
	kindReplicaSilent    kind = "replica-silent"
	kindNotReady         kind = "not-ready"
	kindNoLeader         kind = "no-leader"
	kindTwoLeaders       kind = "two-leaders"
	kindNoElector        kind = "no-elector"
	kindRenewalLate      kind = "renewal-late"
	kindUnaccounted      kind = "unaccounted"
	kindNoEpochLeft      kind = "no-epoch-left"
	kindOtherMode        kind = "other-mode"
	kindCannotLead       kind = "cannot-lead"
	kindFlapping         kind = "flapping"
	kindQuarantined      kind = "quarantined"
	kindContact          kind = "contact"
	kindNoStandbys       kind = "no-standbys"
	kindSingleReplica    kind = "single-replica"
	kindControllerLate   kind = "controller-late"
	kindControllerFailed kind = "controller-failed"
	kindControllerStalls kind = "controller-stalled"
	kindControllerHeld   kind = "controller-held"
	kindControllerAgain  kind = "controller-restarting"
	kindControllerWaits  kind = "controller-waiting"
	kindEtcdMember       kind = "etcd-member"
	kindSetAside         kind = "set-aside"
	kindPeerSilent       kind = "peer-silent"
	kindCertificate      kind = "certificate"
	kindShardFull        kind = "shard-full"
	kindVersions         kind = "versions"
	kindClock            kind = "clock"
)

// sections are where the docs say more about each kind.
var sections = map[kind]string{
	kindShardSilent:      "docs/SHARDS.md#what-is-down-and-what-goes-on",
	kindReplicaSilent:    "docs/OPERATIONS.md#how-long-nobody-leads",
	kindNotReady:         "docs/OPERATIONS.md#problems",
	kindNoLeader:         "docs/OPERATIONS.md#who-leads-and-why",
	kindTwoLeaders:       "docs/FENCING.md#what-is-guaranteed",
	kindNoElector:        "docs/ELECTION.md#coordinated",
	kindRenewalLate:      "docs/OPERATIONS.md#how-long-nobody-leads",
	kindUnaccounted:      "docs/OPERATIONS.md#who-leads-and-why",
	kindNoEpochLeft:      "docs/OPERATIONS.md#who-leads-and-why",
	kindOtherMode:        "docs/OPERATIONS.md#who-leads-and-why",
	kindCannotLead:       "docs/OPERATIONS.md#who-leads-and-why",
	kindFlapping:         "docs/FAILOVER.md#what-is-damped",
	kindQuarantined:      "docs/SUPERVISION.md#the-end-of-a-term",
	kindContact:          "docs/FAILOVER.md#addresses-that-lie",
	kindNoStandbys:       "docs/FAILOVER.md#the-probe",
	kindSingleReplica:    "docs/OPERATIONS.md#on-kubernetes",
	kindControllerLate:   "docs/SUPERVISION.md#the-end-of-a-term",
	kindControllerFailed: "docs/SUPERVISION.md#when-a-controller-fails-on-every-replica",
	kindControllerStalls: "docs/SUPERVISION.md#what-a-controller-may-say",
	kindControllerHeld:   "docs/SUPERVISION.md#turns",
	kindControllerAgain:  "docs/SUPERVISION.md#policies",
	kindControllerWaits:  "docs/SUPERVISION.md#policies",
	kindEtcdMember:       "docs/OPERATIONS.md#an-etcd-of-several-members",
	kindSetAside:         "docs/OPERATIONS.md#what-is-stored-and-is-no-object",
	kindPeerSilent:       "docs/SHARDS.md#what-is-down-and-what-goes-on",
	kindCertificate:      "docs/ACCESS.md#certificates",
	kindShardFull:        "docs/SHARDS.md#planning",
	kindVersions:         "docs/OPERATIONS.md#rolling-upgrade",
	kindClock:            "docs/OPERATIONS.md#problems",
}
