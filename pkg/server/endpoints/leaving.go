package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/moves"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Changing reads what is stored of a logical cluster, and what has changed.
type Changing interface {
	Stored
	ReadChangesIn(ctx context.Context, cluster logicalcluster.Name, after, upTo int64, size int, visit func(storage.StoredIn) error) (through int64, err error)
}

// leaving handles bundle.LeavingPath, for whom freeze handles its path. It answers 409 if the logical cluster cannot
// move now, 410 if the freeze has ended, or if etcd has the revision no more, and 421 if it has moved. In system:admin
// it says what becomes of one whose shard, or the other one, was restored.
type leaving struct {
	freeze
	shard  string
	stored Changing
	moves  *moves.Moves
}

// ServeHTTP implements http.Handler.
func (l *leaving) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if at, ok := clusters.From(req.Context()); ok && at == clusters.SystemAdmin {
		answerJSON(w, req, l.serializer, bundle.Frozen{}, l.reconcile(req))
		return
	}
	cluster, who, err := l.check(req)
	switch {
	case err != nil:
		answer(w, req, l.serializer, "", nil, err)
	case req.Method == http.MethodGet && req.URL.Query().Has("recent"):
		recent, err := l.recent(req.Context(), cluster)
		answerJSON(w, req, l.serializer, recent, err)
	case req.Method == http.MethodGet && req.URL.Query().Has("schemas"):
		names, err := l.moves.BoundSchemas(req.Context(), cluster)
		answerJSON(w, req, l.serializer, bundle.SchemaNames{Schemas: names}, answerOf(err))
	case req.Method == http.MethodGet && req.URL.Query().Has("schema"):
		schema, err := l.moves.BoundSchema(req.Context(), cluster, req.URL.Query().Get("schema"))
		answerJSON(w, req, l.serializer, schema, answerOf(err))
	case req.Method == http.MethodGet:
		page, err := l.read(req, cluster)
		answer(w, req, l.serializer, "application/jsonl", page, err)
	default:
		departure, err := l.take(req, cluster, who)
		answerJSON(w, req, l.serializer, departure, err)
	}
}

func (l *leaving) check(req *http.Request) (cluster logicalcluster.Name, who string, err error) {
	cluster, ok := clusters.From(req.Context())
	if !ok || cluster == clusters.Wildcard || clusters.IsPermanent(cluster) {
		return "", "", apierrors.NewBadRequest("one logical cluster of a workspace moves, as in /clusters/root:team" + bundle.LeavingPath)
	}
	who, err = l.mayWriteAll(req, bundle.LeavingPath)
	return cluster, who, err
}

// reconcile says where a logical cluster is after a restore.
func (l *leaving) reconcile(req *http.Request) error {
	if _, err := l.mayWriteAll(req, bundle.LeavingPath); err != nil {
		return err
	}
	if err := l.checkFormat(); err != nil {
		return err
	}
	cluster, to := logicalcluster.Name(req.URL.Query().Get("cluster")), req.URL.Query().Get("to")
	switch {
	case !clusters.IsValidName(cluster) || req.Method == http.MethodPost && !clusters.IsSegment(to):
		return apierrors.NewBadRequest("give ?cluster= the name of the logical cluster, and for POST ?to= the shard that has it")
	case req.Method == http.MethodPost:
		return answerOf(l.moves.Concede(req.Context(), cluster, to))
	case req.Method == http.MethodDelete:
		return answerOf(l.moves.Return(req.Context(), cluster))
	}
	return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "leaving"}, req.Method)
}

func (l *leaving) take(req *http.Request, cluster logicalcluster.Name, who string) (none bundle.Departure, err error) {
	query := req.URL.Query()
	to := clusters.Move{Shard: query.Get("to"), ID: query.Get("move")}
	if req.Method == http.MethodPost && (!clusters.IsSegment(to.Shard) || !clusters.IsSegment(to.ID) || to.Shard == l.shard) {
		return none, apierrors.NewBadRequest(fmt.Sprintf("give ?to= another shard than %s, and ?move= an id of small letters, digits and dashes", l.shard))
	}
	if req.Method == http.MethodPost && query.Get("freeze") == "" {
		return l.begin(req.Context(), cluster, to, who)
	}
	frozen, err := storage.ParseFreeze(cluster, query.Get("freeze"))
	if err != nil {
		return none, apierrors.NewBadRequest(err.Error() + ": give ?freeze= what the answer to POST has said")
	}
	switch req.Method {
	case http.MethodPost:
		err = l.moves.Depart(req.Context(), frozen, to)
	case http.MethodPut:
		err = l.freezer.Renew(req.Context(), frozen)
	case http.MethodDelete:
		err = l.moves.Stay(req.Context(), frozen)
	default:
		return none, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "leaving"}, req.Method)
	}
	return bundle.Departure{Frozen: tell(frozen)}, answerOf(err)
}

func (l *leaving) begin(ctx context.Context, cluster logicalcluster.Name, to clusters.Move, who string) (bundle.Departure, error) {
	if err := l.checkFormat(); err != nil {
		return bundle.Departure{}, err
	}
	is, err := l.moves.Leave(ctx, cluster, to, who)
	if err != nil {
		return bundle.Departure{}, answerOf(err)
	}
	lc, err := moves.Encode(is.LogicalCluster)
	return bundle.Departure{Frozen: tell(is.Freeze), LogicalCluster: lc.JSON, Objects: is.Objects}, err
}

// read returns a page, or what has changed.
func (l *leaving) read(req *http.Request, cluster logicalcluster.Name) ([]byte, error) {
	var lines bytes.Buffer
	through, more, err := l.readInto(req.Context(), cluster, req.URL.Query(), json.NewEncoder(&lines))
	var refused apierrors.APIStatus
	switch {
	case errors.Is(err, storage.ErrCompacted):
		return nil, apierrors.NewResourceExpired(err.Error() + ": begin again")
	case errors.As(err, &refused):
		return nil, err
	case err != nil:
		return nil, routing.NewUnavailable(err.Error())
	}
	if err := json.NewEncoder(&lines).Encode(bundle.Line{Page: &bundle.Page{More: more}}); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var out bytes.Buffer
	header := bundle.Header{Version: bundle.Version, Cluster: cluster.String(), Path: cluster.String(), Shard: l.shard, Revision: through, Time: time.Now().UTC(), WrittenBy: build.Info().GitVersion}
	if err := json.NewEncoder(&out).Encode(bundle.Line{Header: &header}); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	_, err = lines.WriteTo(&out)
	return out.Bytes(), err
}

// readInto writes what is asked for, as lines, and returns the revision up to which that is, and whether there is more.
func (l *leaving) readInto(ctx context.Context, cluster logicalcluster.Name, query url.Values, lines *json.Encoder) (through int64, more bool, err error) {
	revision, err := revisionIn(query, "revision")
	if err != nil {
		return 0, false, err
	}
	since, err := revisionIn(query, "since")
	if err != nil {
		return 0, false, err
	}
	now, err := l.stored.Revision(ctx)
	if err != nil {
		return 0, false, err
	}
	take := func(s storage.Stored, gone bool) error {
		if s.Key == bundle.LogicalClusterKey {
			return nil
		}
		if s.Fault != nil {
			return newConflict("%s cannot be read, so it cannot move: an administrator finds it in etcd (docs/OPERATIONS.md), and mends or deletes it: %v", s.Key, s.Fault)
		}
		return lines.Encode(bundle.Line{Object: &bundle.Object{Key: s.Key, Revision: s.Revision, Object: s.JSON, Deleted: gone}})
	}
	switch until := query.Get("until"); {
	case since > 0 && until != "":
		return l.readUntil(ctx, cluster, since, until, take)
	case since > 0:
		through, err = l.stored.ReadChangesIn(ctx, cluster, since, now, pageBytes, func(in storage.StoredIn) error { return take(in.Stored, in.Gone) })
		return through, through < now, err
	case revision == 0:
		revision = now
	}
	more, err = l.stored.ReadPage(ctx, cluster, revision, query.Get("after"), pageBytes, func(s storage.Stored) error { return take(s, false) })
	return revision, more, err
}

// revisionIn returns a revision that a query has. 0: it has none.
func revisionIn(query url.Values, name string) (int64, error) {
	if query.Get(name) == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(query.Get(name), 10, 64)
	if err != nil || n <= 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("%s=%q must be a revision of etcd", name, query.Get(name)))
	}
	return n, nil
}

// recently is for how long clients may not have heard of what has changed: a watch hears each minute how far it is.
const recently = 150 * time.Second

// recent returns what has changed in the last minutes. If that cannot be said, nothing has, and since now.
func (l *leaving) recent(ctx context.Context, cluster logicalcluster.Name) (bundle.Recent, error) {
	now, err := l.stored.Revision(ctx)
	if err != nil {
		return bundle.Recent{}, routing.NewUnavailable(err.Error())
	}
	since, err := l.stored.RevisionAgo(recently)
	if err != nil {
		since = now
	}
	out := bundle.Recent{Since: since, Revision: now, Last: map[string]int64{}}
	_, err = l.stored.ReadChangesIn(ctx, cluster, since, now, math.MaxInt, func(in storage.StoredIn) error {
		out.Last[bundle.ResourceOf(in.Key)] = in.Revision
		return nil
	})
	if err != nil {
		out.Since, out.Last = now, nil
	}
	if out.Objects, err = l.moves.Store.Count(ctx, cluster); err != nil { // it is only told
		out.Objects = 0
	}
	return out, ctx.Err()
}

// leavePatience is how long a logical cluster may take to leave that somebody waits for.
const leavePatience = 10 * time.Second

// errIsLeaving is of changes that are read up to the moment at which the logical cluster left.
var errIsLeaving = errors.New("it leaves")

// readUntil reads changes until the logical cluster may make a move, and is frozen.
func (l *leaving) readUntil(ctx context.Context, cluster logicalcluster.Name, since int64, move string, take func(storage.Stored, bool) error) (through int64, more bool, err error) {
	within, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	through = since
	all, err := l.stored.ReadChangesIn(within, cluster, since, storage.AsTheyCome, pageBytes, func(in storage.StoredIn) error {
		if through = in.Revision; in.Key != bundle.LogicalClusterKey {
			return take(in.Stored, in.Gone)
		}
		lc := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(in.JSON, lc); err == nil && clusters.Leaving(lc).ID == move {
			return errIsLeaving
		}
		return nil
	})
	switch {
	case err == nil:
		return all, true, nil
	case errors.Is(err, errIsLeaving):
		return through, false, nil
	case within.Err() != nil && ctx.Err() == nil: // the changes of one revision come together
		return through, true, nil
	}
	return 0, false, err
}

var _ http.Handler = (*leaving)(nil)
