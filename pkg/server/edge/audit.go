package edge

import (
	"context"
	"strconv"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Annotations of audit events, beside those of package routing.
const (
	// AuditShard and AuditReplica say who has answered the request. They are on each event.
	AuditShard, AuditReplica = "regent.dev/shard", "regent.dev/replica"
	// AuditLease, AuditHolder and AuditEpoch are the fencing token of a write, also of one that was refused (412):
	// the Lease as <cluster>/<namespace>/<name>, who held it, and the number of the term.
	AuditLease, AuditHolder, AuditEpoch = "regent.dev/lease", "regent.dev/holder", "regent.dev/epoch"
)

// AuditStamp says on each event who has answered the request.
type AuditStamp struct {
	audit.Backend
	Shard, Replica string
}

// ProcessEvents implements audit.Sink. Upstream calls it with the lock on the event held, once for each stage.
func (s *AuditStamp) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		if e.Annotations == nil {
			e.Annotations = map[string]string{}
		}
		e.Annotations[AuditShard], e.Annotations[AuditReplica] = s.Shard, s.Replica
	}
	return s.Backend.ProcessEvents(events...)
}

// auditToken puts the term on the event of a write.
func auditToken(ctx context.Context, token fence.Token) {
	audit.AddAuditAnnotations(ctx,
		AuditLease, token.Cluster.String()+"/"+token.Namespace+"/"+token.Name, AuditHolder, token.Holder, AuditEpoch, strconv.FormatInt(token.Epoch, 10))
}
