package status

// kind is the word by which programs know a problem: Problem.Kind. docs/OPERATIONS.md lists them.
type kind string

const (
	kindShardSilent      kind = "shard-silent"
	kindReplicaSilent    kind = "replica-silent"
	kindSameName         kind = "same-name"
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
	kindMoved            kind = "moved"
	kindVersions         kind = "versions"
	kindSkew             kind = "skew"
	kindClock            kind = "clock"
)

// Matter is what kinds of problems are about, in the words with which `regent doctor` lists what it has looked at.
type Matter string

// The matters. Versions and clocks are those of all replicas together, and all others those of a shard.
const (
	MatterAnswers      Matter = "replicas answer"
	MatterReady        Matter = "replicas are ready"
	MatterLeader       Matter = "one leads"
	MatterLease        Matter = "the lease is renewed"
	MatterProbe        Matter = "standbys reach the leader's probe"
	MatterControllers  Matter = "controllers work"
	MatterEtcd         Matter = "members of etcd answer"
	MatterStored       Matter = "what is stored is sound"
	MatterPeers        Matter = "other shards are heard"
	MatterCertificates Matter = "certificates last"
	MatterRoom         Matter = "there is room for clusters"
	MatterVersions     Matter = "versions agree"
	MatterClocks       Matter = "clocks agree"
)

// Matters are all of them, in the order in which they are listed.
var Matters = []Matter{
	MatterAnswers,
	MatterReady,
	MatterLeader,
	MatterLease,
	MatterProbe,
	MatterControllers,
	MatterEtcd,
	MatterStored,
	MatterPeers,
	MatterCertificates,
	MatterRoom,
	MatterVersions,
	MatterClocks,
}

// about says what each kind is about, and where the docs say more.
var about = map[kind]struct {
	matter  Matter
	section string
}{
	kindShardSilent:      {MatterAnswers, "docs/SHARDS.md#what-is-down-and-what-goes-on"},
	kindReplicaSilent:    {MatterAnswers, "docs/OPERATIONS.md#how-long-nobody-leads"},
	kindSameName:         {MatterAnswers, "docs/OPERATIONS.md#problems"},
	kindNotReady:         {MatterReady, "docs/OPERATIONS.md#problems"},
	kindNoLeader:         {MatterLeader, "docs/OPERATIONS.md#who-leads-and-why"},
	kindTwoLeaders:       {MatterLeader, "docs/FENCING.md#what-is-guaranteed"},
	kindNoElector:        {MatterLeader, "docs/ELECTION.md#coordinated"},
	kindRenewalLate:      {MatterLease, "docs/OPERATIONS.md#how-long-nobody-leads"},
	kindUnaccounted:      {MatterLeader, "docs/OPERATIONS.md#who-leads-and-why"},
	kindNoEpochLeft:      {MatterLeader, "docs/OPERATIONS.md#who-leads-and-why"},
	kindOtherMode:        {MatterLeader, "docs/OPERATIONS.md#who-leads-and-why"},
	kindCannotLead:       {MatterLeader, "docs/OPERATIONS.md#who-leads-and-why"},
	kindFlapping:         {MatterLeader, "docs/FAILOVER.md#what-is-damped"},
	kindQuarantined:      {MatterControllers, "docs/SUPERVISION.md#the-end-of-a-term"},
	kindContact:          {MatterProbe, "docs/FAILOVER.md#addresses-that-lie"},
	kindNoStandbys:       {MatterProbe, "docs/FAILOVER.md#the-probe"},
	kindSingleReplica:    {MatterAnswers, "docs/OPERATIONS.md#on-kubernetes"},
	kindControllerLate:   {MatterControllers, "docs/SUPERVISION.md#the-end-of-a-term"},
	kindControllerFailed: {MatterControllers, "docs/SUPERVISION.md#when-a-controller-fails-on-every-replica"},
	kindControllerStalls: {MatterControllers, "docs/SUPERVISION.md#what-a-controller-may-say"},
	kindControllerHeld:   {MatterControllers, "docs/SUPERVISION.md#turns"},
	kindControllerAgain:  {MatterControllers, "docs/SUPERVISION.md#policies"},
	kindControllerWaits:  {MatterControllers, "docs/SUPERVISION.md#policies"},
	kindEtcdMember:       {MatterEtcd, "docs/OPERATIONS.md#an-etcd-of-several-members"},
	kindSetAside:         {MatterStored, "docs/OPERATIONS.md#what-is-stored-and-is-no-object"},
	kindPeerSilent:       {MatterPeers, "docs/SHARDS.md#what-is-down-and-what-goes-on"},
	kindCertificate:      {MatterCertificates, "docs/CERTIFICATES.md#certificates"},
	kindShardFull:        {MatterRoom, "docs/SHARDS.md#planning"},
	kindMoved:            {MatterRoom, "docs/MOVING.md#if-something-fails"},
	kindVersions:         {MatterVersions, "docs/UPGRADE.md#roll-a-shard"},
	kindSkew:             {MatterVersions, "docs/UPGRADE.md#skew"},
	kindClock:            {MatterClocks, "docs/OPERATIONS.md#problems"},
}

// About returns what a problem is about. Those that only `regent doctor` finds are about nothing of these.
func (p Problem) About() Matter { return about[kind(p.Kind)].matter }
