package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/server/backup"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// StoredInShard reads what all logical clusters have stored.
type StoredInShard interface {
	Now(context.Context) (storage.Now, error)
	ReadShardPage(ctx context.Context, revision int64, after string, size int, visit func(storage.StoredIn) error) (more bool, err error)
	ReadChanges(ctx context.Context, after, upTo int64, size int, visit func(storage.StoredIn) error) (through int64, err error)
}

// changesPatience is how long etcd may take to tell what has changed.
const changesPatience = 10 * time.Second

// backupFrame handles GET /regent/v1/backup, for members of system:masters, and for whom a ClusterRoleBinding in
// system:admin allows it: a frame of the shard's backup (package backup), sealed for the recipients that the shard was
// given. Its user cannot read it, so the right is none to read anything. It answers 404 if there are no recipients, and
// 410 if etcd has the changes no more.
type backupFrame struct {
	shard      string
	stored     StoredInShard
	recipients []age.Recipient
	serializer runtime.NegotiatedSerializer
}

// ServeHTTP implements http.Handler.
func (b *backupFrame) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	frame, err := b.read(req)
	answer(w, req, b.serializer, "application/octet-stream", frame, err)
}

func (b *backupFrame) read(req *http.Request) ([]byte, error) {
	if req.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "backup"}, req.Method)
	}
	if len(b.recipients) == 0 {
		return nil, newStatus(http.StatusNotFound, metav1.StatusReasonNotFound,
			"this replica does not know for whom a backup is sealed: start all replicas of the shard with --backup-recipients=age1...")
	}
	query := req.URL.Query()
	kind, after := backup.Kind(query.Get("of")), query.Get("after")
	frame, err := backup.NewFrame(kind, b.recipients)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	frame.Shard, frame.WrittenBy = b.shard, build.Info().GitVersion
	now, err := b.stored.Now(req.Context())
	if err != nil {
		return nil, routing.NewUnavailable(err.Error())
	}
	frame.Revision, frame.Etcd, frame.Raft, frame.Time = now.Revision, now.Etcd, now.Raft, time.Now().UTC()
	first := backup.Answer{}
	switch kind {
	case backup.Base:
		first.Next, err = b.readBase(req.Context(), frame, after)
	case backup.Changes:
		err = b.readChanges(req.Context(), frame, after)
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("of=%q must be %s or %s", kind, backup.Base, backup.Changes))
	}
	var refused apierrors.APIStatus
	switch {
	case errors.Is(err, storage.ErrCompacted):
		return nil, apierrors.NewResourceExpired(err.Error() + ": take a base, and follow the changes behind it")
	case errors.As(err, &refused):
		return nil, err
	case err != nil:
		return nil, routing.NewUnavailable(err.Error())
	}
	return encodeAnswer(first, frame)
}

func encodeAnswer(first backup.Answer, frame *backup.Frame) ([]byte, error) {
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(first); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if _, err := frame.WriteTo(&out); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return out.Bytes(), nil
}

// readBase fills a frame with what is behind a place, and returns where the next one begins.
func (b *backupFrame) readBase(ctx context.Context, frame *backup.Frame, after string) (next string, err error) {
	last := after
	frame.More, err = b.stored.ReadShardPage(ctx, frame.Revision, after, pageBytes, func(in storage.StoredIn) error {
		if frame.First == "" {
			frame.First = in.In
		}
		last = in.Place
		return frame.Add(recordOf(in))
	})
	if !frame.More {
		last = ""
	}
	return last, err
}

// readChanges fills a frame with what has changed behind a revision. A frame without records says that there is nothing
// new.
func (b *backupFrame) readChanges(ctx context.Context, frame *backup.Frame, text string) error {
	if text == "" {
		frame.After = frame.Revision
		return nil
	}
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after <= 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("after=%q must be the revision of the frame before", text))
	}
	if after > frame.Revision {
		return newConflict("etcd has gone back: it has revision %d, and the backup has changes up to %d: begin a new backup", frame.Revision, after)
	}
	ctx, cancel := context.WithTimeout(ctx, changesPatience)
	defer cancel()
	through, err := b.stored.ReadChanges(ctx, after, frame.Revision, pageBytes, func(in storage.StoredIn) error { return frame.Add(recordOf(in)) })
	if err != nil {
		return err
	}
	if frame.After = after; through < frame.Revision {
		frame.Revision, frame.Time = through, time.Time{}
	}
	return nil
}

// recordOf returns what a backup says of what is stored.
func recordOf(in storage.StoredIn) backup.Record {
	r := backup.Record{Cluster: in.Cluster.String(), Object: objectOf(in.Stored), Secret: in.Encrypted || strings.HasPrefix(in.Key, secrets)}
	if r.Gone = in.Gone; in.Gone {
		r.Secret = false
	}
	if r.Deleted { // a shard is made of it again, so it is needed as it is stored
		r.Object.Object = in.JSON
	}
	return r
}

var _ http.Handler = (*backupFrame)(nil)
