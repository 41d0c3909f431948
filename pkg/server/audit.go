package server

import (
	"context"
	"strconv"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Annotations of audit events, beside those of package routing.
const (
	// auditShard and auditReplica say who has answered the request. They are on each event.
	auditShard, auditReplica = "regent.dev/shard", "regent.dev/replica"
	// auditLease, auditHolder and auditEpoch are the fencing token of a write, also of one that was refused (412): the Lease as
	// <cluster>/<namespace>/<name>, who held it, and the number of the term.
	auditLease, auditHolder, auditEpoch = "regent.dev/lease", "regent.dev/holder", "regent.dev/epoch"
)

// auditStamp says on each event who has answered the request.
type auditStamp struct {
	audit.Backend
	shard, replica string
}

// ProcessEvents implements audit.Sink. Upstream calls it with the lock on the event held, once for each stage.
func (s *auditStamp) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		if e.Annotations == nil {
			e.Annotations = map[string]string{}
		}
		e.Annotations[auditShard], e.Annotations[auditReplica] = s.shard, s.replica
	}
	return s.Backend.ProcessEvents(events...)
}

// auditToken puts the term on the event of a write.
func auditToken(ctx context.Context, token fence.Token) {
	audit.AddAuditAnnotations(ctx,
		auditLease, token.Cluster.String()+"/"+token.Namespace+"/"+token.Name, auditHolder, token.Holder, auditEpoch, strconv.FormatInt(token.Epoch, 10))
}
