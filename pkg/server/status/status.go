// Package status says how a replica, a shard and an installation are doing: who leads, since when and why, what each
// replica does, what is wrong, and what to do about it. Replicas serve it (Paths), `regent status` and the page show
// it. Programs may rely on the JSON: fields are added, never renamed or removed.
package status

import (
	"cmp"
	"time"
)

// The paths at which a replica answers GET with JSON. A user who may read /metrics by a ClusterRoleBinding in
// system:admin may be given these, too.
const (
	// ReplicaPath answers with the Replica that was asked, and asks nobody else.
	ReplicaPath = "/regent/v1/replica"
	// ShardPath answers with the Shard: all its replicas, as far as they answer.
	ShardPath = "/regent/v1/shard"
	// InstallationPath answers with the Installation: all shards, as far as they answer. A lone shard is an
	// installation of one.
	InstallationPath = "/regent/v1/installation"
	// TermsPath answers with Terms: of this shard, or of the one that the query names (?shard=<name>).
	TermsPath = "/regent/v1/terms"
	// WorkspacesPath answers with Workspaces: those whose path contains the text of ?search=, of the whole
	// installation, as far as it answers.
	WorkspacesPath = "/regent/v1/workspaces"
	// TokenKeysPath answers with the public keys of the tokens of this shard's service accounts, and AccountPath
	// whether one of them is there: other shards ask. What they say is of package serviceaccounts.
	TokenKeysPath = "/regent/v1/tokenkeys"
	AccountPath   = "/regent/v1/account"
	// ExportPath answers what other shards ask about an APIExport of this one. What it says is of package exports.
	ExportPath = "/regent/v1/export"
	// FarewellPath takes POST with a Farewell from a replica of the same shard.
	FarewellPath = "/regent/v1/farewell"
	// TopPath answers with the Top of the replica that was asked: what its clients asked for, by logical cluster.
	TopPath = "/regent/v1/top"
	// FormatPath takes POST with a Finalize, and raises the format of the shard.
	FormatPath = "/regent/v1/format"
	// BackupPath answers with a frame of the shard's backup (package backup). The query ?of= has a Kind. For
	// changes ?after= is the revision of the frame before; without it the frame is empty, and of now. For a base
	// ?after= is backup.Answer.Next.
	BackupPath = "/regent/v1/backup"
)

// Installation is a tree of workspaces on one or more shards.
type Installation struct {
	// Observed is when the answer was made, by the clock of the replica that made it (By).
	Observed time.Time `json:"observed"`
	By       string    `json:"by"`
	// Root is the name of the root shard.
	Root   string  `json:"root"`
	Shards []Shard `json:"shards"`
	Fronts []Front `json:"fronts,omitempty"`
	// Problems are all that Diagnose finds, the worst first.
	Problems []Problem `json:"problems,omitempty"`
	// Triggers are sentences for the triggers of terms and elections, for whoever shows them.
	Triggers map[string]string `json:"triggers,omitempty"`
}

// Shard is one etcd keyspace and the replicas that serve it.
type Shard struct {
	Name string `json:"name"`
	// Fault says why nothing is known of the shard. The other fields below are empty then, but for Terms, as they
	// were when it last answered the replica that made the answer, and Heard, when that was. Both are empty if it
	// never has.
	Fault string    `json:"fault,omitempty"`
	Heard time.Time `json:"heard,omitzero"`
	// URL is where clients reach it, as in spec.URL of workspaces.
	URL string `json:"url,omitempty"`
	// Cordoned: it takes no new logical clusters. Clusters counts those that it has; Capacity is its limit, 0 if
	// there is none.
	Cordoned bool `json:"cordoned,omitempty"`
	Clusters int  `json:"clusters"`
	Capacity int  `json:"capacity,omitempty"`
	// Moves are logical clusters that come and go. Nil: there are none.
	Moves *Moves `json:"moves,omitempty"`
	// Leader is the name of the replica that leads, and LeaderInstance that of its process, as in Replica. Both are
	// empty if none is known to lead.
	Leader         string    `json:"leader,omitempty"`
	LeaderInstance string    `json:"leaderInstance,omitempty"`
	Replicas       []Replica `json:"replicas"`
	// Terms are the latest terms, the latest first, ten at the most. TermsPath has more.
	Terms []Term `json:"terms,omitempty"`
}

// LedBy reports whether a replica is the one that leads.
func (s Shard) LedBy(r Replica) bool {
	return s.Leader != "" && s.Leader == r.Name && (s.LeaderInstance == r.Instance || s.LeaderInstance == "" || r.Instance == "")
}

// Front is a `regent front` that asks this installation's shards.
type Front struct {
	Name string `json:"name"`
	// Heard is when a replica last had a request of it, by that replica's clock; zero: never. In an Installation it
	// is the latest of all replicas.
	Heard time.Time `json:"heard,omitzero"`
	// Version is what the front runs, as it has said when it last asked for itself; empty: it runs one before
	// v0.2.0, or has not asked yet.
	Version string `json:"version,omitempty"`
}

// Replica is one server process of a shard.
type Replica struct {
	Shard string `json:"shard"`
	// Name stays when the replica is started anew. Instance is the name of its process, which no other one ever
	// has. It is empty if the replica runs an older version, which gives each process a Name of its own.
	Name     string `json:"name"`
	Instance string `json:"instance,omitempty"`
	// URL is where others reach this replica: https://<host>:<port>.
	URL string `json:"url,omitempty"`
	// Fault says why the replica could not be asked. Then only Name, Instance, URL and Seen are known besides: when
	// it last answered, or another replica was in contact with it, as far as the one knows that made the answer.
	Fault   string    `json:"fault,omitempty"`
	Seen    time.Time `json:"seen,omitzero"`
	Version string    `json:"version,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// Observed is when the replica answered, by its own clock.
	Observed time.Time `json:"observed,omitzero"`
	// Format says which formats of what is stored the replica reads. Nil: it runs a version before v0.2.0, which
	// reads the first one.
	Format *Format `json:"format,omitempty"`
	// Ranges are those of the shard, as this replica knows them. Nil: one leader leads all, and Election says who.
	// Otherwise Election is that of range 0.
	Ranges *Ranges `json:"ranges,omitempty"`
	// NotReady are the checks of /readyz that fail, with their errors.
	NotReady []Check `json:"notReady,omitempty"`
	// Election is about the shard's Lease. Electing is about the Lease of those who elect the leader, in mode
	// coordinated.
	Election Election  `json:"election"`
	Electing *Election `json:"electing,omitempty"`
	// Controllers are those of the registry, in its order.
	Controllers []Controller `json:"controllers,omitempty"`
	// Etcd are the members that this replica knows by --etcd-servers.
	Etcd []Member `json:"etcd,omitempty"`
	// Aside is what the replica has found in etcd that is no object, and shows to nobody.
	Aside []Aside `json:"aside,omitempty"`
	// Peers are the other shards of which this replica reads.
	Peers []Peer `json:"peers,omitempty"`
	// Left are processes of the shard that have ended in order in the last ten minutes, as far as they have told
	// this one themselves: by Instance, or by Name if they had none.
	Left []string `json:"left,omitempty"`
	// Fronts are those of the installation, with when this replica last had a request of each.
	Fronts []Front `json:"fronts,omitempty"`
	// Certificates are those that this replica shows or trusts, and that expire.
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Process returns what names the replica's process, and no other one: Instance, or Name in older versions.
func (r Replica) Process() string { return cmp.Or(r.Instance, r.Name) }

// Farewell is what a replica sends to the others of its shard when it ends in order.
type Farewell struct {
	// Replica and Instance are Name and Instance of the one that ends.
	Replica  string `json:"replica"`
	Instance string `json:"instance,omitempty"`
}

// Finalize asks a replica to raise the format of its shard.
type Finalize struct {
	// To is the format, as Upgrade has it: if that has changed meanwhile, nothing is done.
	To int `json:"to"`
}

// Check is a check of /readyz that fails.
type Check struct {
	Name  string `json:"name"`
	Error string `json:"error"`
}

// Election is what a replica knows of a Lease, and what it does about it.
type Election struct {
	// Lease is <namespace>/<name>. Empty: the replica runs without leader election.
	Lease string `json:"lease,omitempty"`
	// Mode is the name of one of election.Modes: that in which this replica stands for election.
	Mode string `json:"mode,omitempty"`
	// State is standing by, campaigning, leading, draining or quarantined, or stopped while the replica starts or
	// ends.
	State string `json:"state"`
	// Epoch is the number of the term that the Lease shows, Holder its holder identity, and Leader the replica that
	// holds it. Holder is empty if nobody holds the lease, Leader if the holder does not say which replica it is.
	// LeaderInstance is the leader's process.
	Epoch          int64  `json:"epoch"`
	Holder         string `json:"holder,omitempty"`
	Leader         string `json:"leader,omitempty"`
	LeaderInstance string `json:"leaderInstance,omitempty"`
	// LeaderURL is where others reach the leader. Empty: it does not say.
	LeaderURL string `json:"leaderURL,omitempty"`
	// Since is when the term began, Renewed when it was last renewed, both by the holder's clock. Duration is the
	// lease duration in seconds; 0 if nobody holds the lease, or if it does not expire.
	Since    time.Time `json:"since,omitzero"`
	Renewed  time.Time `json:"renewed,omitzero"`
	Duration int32     `json:"leaseDurationSeconds,omitempty"`
	// Trigger says why the replica campaigned for the term in which it leads, as in Term. Only the leader knows it.
	Trigger string `json:"trigger,omitempty"`
	// Term is the term in which the replica leads, as it will be recorded once its takeover is measured: with the
	// gap before it, and the phases that are over. Only the leader knows it.
	Term *Term `json:"term,omitempty"`
	// Leaderless is for how many seconds the replica has known no leader.
	Leaderless float64 `json:"leaderlessSeconds,omitempty"`
	// LastStepDown says why a holder last gave the lease up.
	LastStepDown string `json:"lastStepDown,omitempty"`
	// Unaccounted: the holder may be dead, and an operator has to say so. OtherMode: leaders lead in another mode
	// than this replica's.
	Unaccounted bool `json:"unaccounted,omitempty"`
	OtherMode   bool `json:"otherMode,omitempty"`
	// CannotLead says what keeps the replica from the election: it cannot read the Lease, or cannot keep its
	// LeaseCandidate, or, while nobody leads, cannot write the Lease. Empty: nothing.
	CannotLead string `json:"cannotLead,omitempty"`
	// Priority is this replica's.
	Priority int32 `json:"priority,omitempty"`
	// Contact is a standby's contact with the leader's process. Nil on the leader, and without failure detection.
	Contact *Contact `json:"contact,omitempty"`
	// Standbys are the replicas that follow this one, which leads.
	Standbys []Standby `json:"standbys,omitempty"`
}

// Ranges are the parts into which the logical clusters of a shard are divided, each with a leader and a Lease of its
// own: <election's Lease>-<range>.
type Ranges struct {
	// Number is how many there are; 0: the replica does not know yet. Wanted is how many it wants there to be.
	// Waits says why it leads none, as while the number changes; empty: it leads its share.
	Number int    `json:"number"`
	Wanted int    `json:"wanted"`
	Waits  string `json:"waits,omitempty"`
	// Ranges has all of them, in order, and none while the replica waits. Replicas are those that are present.
	Ranges   []Range        `json:"ranges,omitempty"`
	Replicas []RangeReplica `json:"replicas,omitempty"`
}

// Divided returns the ranges as the replica knows them that knows most; nil: the shard has one leader.
func (s Shard) Divided() (of *Ranges) {
	for _, r := range s.Replicas {
		if r.Fault == "" && r.Ranges != nil && (of == nil || len(r.Ranges.Ranges) > len(of.Ranges)) {
			of = r.Ranges
		}
	}
	return of
}

// Range is what a replica knows of a range, and what it does about it. Its fields are those of Election. Assigned is
// the process that should lead it; empty while nobody can.
type Range struct {
	Range          int       `json:"range"`
	State          string    `json:"state"`
	Epoch          int64     `json:"epoch"`
	Leader         string    `json:"leader,omitempty"`
	LeaderInstance string    `json:"leaderInstance,omitempty"`
	LeaderURL      string    `json:"leaderURL,omitempty"`
	Assigned       string    `json:"assigned,omitempty"`
	Since          time.Time `json:"since,omitzero"`
	Trigger        string    `json:"trigger,omitempty"`
	Leaderless     float64   `json:"leaderlessSeconds,omitempty"`
	LastStepDown   string    `json:"lastStepDown,omitempty"`
}

// RangeReplica is a replica that is present. Weight is how large a share it wants, beside others, Leads how many ranges
// it leads, Share how many it should lead, and Wants how many ranges it wants there to be.
type RangeReplica struct {
	Name     string `json:"name"`
	Instance string `json:"instance,omitempty"`
	URL      string `json:"url,omitempty"`
	Weight   int    `json:"weight"`
	Leads    int    `json:"leads"`
	Share    int    `json:"share"`
	Wants    int    `json:"wants"`
}

// Contact is a standby's contact with the leader's process.
type Contact struct {
	// State is one of the states of regent_failure_detection_contact: alive, connecting, silent, dead, absent,
	// unreachable, refused, untrusted or unauthorized.
	State string `json:"state"`
	// Heard is when the leader's last beat came. AllowedSilence is how many seconds it may be silent before it is
	// suspected.
	Heard          time.Time `json:"heard,omitzero"`
	AllowedSilence float64   `json:"allowedSilenceSeconds,omitempty"`
}

// Standby is a replica that follows a leader. Replica and Instance are its Name and Instance.
type Standby struct {
	Replica  string `json:"replica"`
	Instance string `json:"instance,omitempty"`
	URL      string `json:"url,omitempty"`
	Mode     string `json:"mode,omitempty"`
	Priority int32  `json:"priority,omitempty"`
}

// Controller is a controller of a replica.
type Controller struct {
	Name string `json:"name"`
	// Scope is leader, electing or every-replica.
	Scope string `json:"scope"`
	// State is one of the states of regent_controller_state, Since when it was entered.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Restarts, Panics and Stalls count since the process started.
	Restarts int `json:"restarts,omitempty"`
	Panics   int `json:"panics,omitempty"`
	Stalls   int `json:"stalls,omitempty"`
	// LastError is why it last failed, at Failed, and Effect what the supervisor did about it, in the words of
	// docs/SUPERVISION.md.
	LastError string    `json:"lastError,omitempty"`
	Failed    time.Time `json:"failed,omitzero"`
	Effect    string    `json:"effect,omitempty"`
	// Tolerated: its failure does not end the term, because other replicas could not run it either.
	Tolerated bool `json:"tolerated,omitempty"`
	// HeldBy is the logical cluster to which all its work belongs, and which gets none of it done. The controller
	// would work for others.
	HeldBy string `json:"heldBy,omitempty"`
	// Users is the queue of what changes, Sweep that of the pass over all objects with which the controller begins.
	Users Lane `json:"users"`
	Sweep Lane `json:"sweep"`
	// Ranges has, if the shard has several, those that this replica leads in which the controller is not well: it
	// does not run, has failed, or is held; at most MostUnwell of them, each with the beginning of its error. What
	// is said above is then of all ranges together: sums, the worst state, and the latest failure.
	Ranges []ControllerOfRange `json:"ranges,omitempty"`
	// Stacks are those of its goroutines. Only a replica that is asked for them (?stacks=<controller>) tells them.
	Stacks string `json:"stacks,omitempty"`
}

// MostUnwell is how many ranges are told of a controller that is not well there.
const MostUnwell = 64

// ControllerOfRange is a controller of a range. Its fields are those of Controller.
type ControllerOfRange struct {
	Range     int       `json:"range"`
	State     string    `json:"state"`
	Since     time.Time `json:"since,omitzero"`
	Restarts  int       `json:"restarts,omitempty"`
	LastError string    `json:"lastError,omitempty"`
	Failed    time.Time `json:"failed,omitzero"`
	HeldBy    string    `json:"heldBy,omitempty"`
	Pending   int       `json:"pending,omitempty"`
}

// Lane is one of a controller's two queues.
type Lane struct {
	// Running: the sweep is not over. A users' lane always runs while the controller does.
	Running bool `json:"running,omitempty"`
	// Pending are items that are due or being worked on, Returned how many were worked on since the controller
	// started.
	Pending  int    `json:"pending"`
	Returned uint64 `json:"returned"`
}

// Member is a member of etcd.
type Member struct {
	Endpoint string `json:"endpoint"`
	// Serves is false for a member that does not answer this replica while another one does.
	Serves bool `json:"serves"`
}

// Aside is what is stored of a resource and is no object.
type Aside struct {
	Resource string `json:"resource"`
	// Number is how many there are, ModRevision that of the latest of them.
	Number      int   `json:"number"`
	ModRevision int64 `json:"modRevision"`
}

// Peer is another shard, as a replica hears it.
type Peer struct {
	Shard string `json:"shard"`
	Heard bool   `json:"heard"`
}

// Certificate is one that expires.
type Certificate struct {
	// Name says what it is for, as in "serving" or "authority".
	Name    string    `json:"name"`
	Expires time.Time `json:"expires"`
}

// Problem is something that is wrong.
type Problem struct {
	Severity Severity `json:"severity"`
	Shard    string   `json:"shard,omitempty"`
	Replica  string   `json:"replica,omitempty"`
	// Kind is a word for programs, as in "no-leader". What says what is wrong, Remedy what to do about it: a line
	// for each step. Lines that begin with "$ " are commands, and the last one names a section of the docs.
	Kind   string `json:"kind"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// Severity says how bad a problem is.
type Severity string

// Critical: nobody leads, or users are refused. Warning: the next failure will hurt. Notice: look at it some day.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
	Notice   Severity = "notice"
)
