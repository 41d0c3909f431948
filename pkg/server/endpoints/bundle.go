package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/build"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// pageBytes is how many bytes of objects a page has, and as many as its last one has.
const pageBytes = 4 << 20

// secrets begins the keys of what is sealed although it may be unencrypted in etcd.
const secrets = "core/secrets/"

// Stored reads what a logical cluster has stored.
type Stored interface {
	Revision(context.Context) (int64, error)
	RevisionAgo(time.Duration) (int64, error)
	ReadPage(ctx context.Context, cluster logicalcluster.Name, revision int64, after string, size int, visit func(storage.Stored) error) (more bool, err error)
}

// bundlePage handles GET /clusters/<path>/bundle, for whoever may get that path in the logical cluster, and list all
// resources in it (*.*): a page of its bundle, as lines of JSON (bundle.Line). With ?revision=<that of the page
// before>&after=<last key of it> it is the next page, which any replica of the shard answers. With ?ago=<duration> the
// first page is of then. Secrets, and what is encrypted in etcd, are sealed for each recipient of age (?sealTo=), or in
// plain text with ?unsealed=true; with neither they are refused. It answers 410 if etcd has the revision no more.
type bundlePage struct {
	shard      string
	stored     Stored
	clusters   *clusters.Informer[*corev1alpha1.LogicalCluster]
	authorizer authorizer.Authorizer
	serializer runtime.NegotiatedSerializer
}

// ServeHTTP implements http.Handler.
func (b *bundlePage) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	page, err := b.read(req)
	answer(w, req, b.serializer, "application/jsonl", page, err)
}

func (b *bundlePage) read(req *http.Request) ([]byte, error) {
	if req.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "bundle"}, req.Method)
	}
	cluster, ok := clusters.From(req.Context())
	if !ok || cluster == clusters.Wildcard || clusters.IsSystem(cluster) {
		return nil, apierrors.NewBadRequest("a bundle is of one logical cluster that has a path, as in /clusters/root:team" + bundle.Path)
	}
	if err := b.mayReadAll(req.Context()); err != nil {
		return nil, err
	}
	query := req.URL.Query()
	seal, err := sealWith(query)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	revision, err := b.revision(req.Context(), query)
	if err != nil {
		return nil, err
	}
	return b.page(req.Context(), cluster, revision, query.Get("after"), seal)
}

// mayReadAll returns an error unless the request's user may list everything. The right to get the path alone would be a
// right to read all.
func (b *bundlePage) mayReadAll(ctx context.Context) error {
	who, ok := apirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewUnauthorized("nobody is known to ask")
	}
	decision, reason, err := b.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "list", APIGroup: "*", APIVersion: "*", Resource: "*", ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		reason = err.Error()
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: "bundle"}, "", fmt.Errorf(
		"a bundle has everything: user %q must be allowed to list all resources (*.*) in the logical cluster, as cluster-admin is: %s", who.GetName(), reason))
}

// revision returns that of the bundle: of the page before, and for the first one that of now.
func (b *bundlePage) revision(ctx context.Context, query url.Values) (int64, error) {
	given := query.Get("revision")
	if ago := query.Get("ago"); ago != "" && given == "" {
		return b.revisionAgo(ago)
	}
	if given == "" && query.Get("after") == "" {
		now, err := b.stored.Revision(ctx)
		if err != nil {
			return 0, routing.NewUnavailable(err.Error())
		}
		return now, nil
	}
	revision, err := strconv.ParseInt(given, 10, 64)
	if err != nil || revision <= 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("revision=%q must be that of the page before", given))
	}
	return revision, nil
}

// revisionAgo returns the revision of a duration ago.
func (b *bundlePage) revisionAgo(text string) (int64, error) {
	ago, err := time.ParseDuration(text)
	if err != nil || ago < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("ago=%q must be a duration, such as 90s", text))
	}
	revision, err := b.stored.RevisionAgo(ago)
	if err != nil {
		return 0, apierrors.NewResourceExpired(err.Error() + ": ask another one, or of a later moment")
	}
	return revision, nil
}

// page returns the lines.
func (b *bundlePage) page(ctx context.Context, cluster logicalcluster.Name, revision int64, after string, seal func(bundle.Object) (bundle.Object, error)) ([]byte, error) {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	header := bundle.Header{
		Version: bundle.Version, Cluster: cluster.String(), Path: b.path(cluster), Shard: b.shard, Revision: revision, Time: time.Now().UTC(), WrittenBy: build.Info().GitVersion,
	}
	if err := lines.Encode(bundle.Line{Header: &header}); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	more, err := b.stored.ReadPage(ctx, cluster, revision, after, pageBytes, func(s storage.Stored) error {
		o := objectOf(s)
		if o.Object != nil && (s.Encrypted || strings.HasPrefix(s.Key, secrets)) {
			var err error
			if o, err = seal(o); err != nil {
				return err
			}
		}
		return lines.Encode(bundle.Line{Object: &o})
	})
	var refused apierrors.APIStatus
	switch {
	case errors.Is(err, storage.ErrCompacted):
		return nil, apierrors.NewResourceExpired(err.Error() + ": begin the bundle again")
	case errors.As(err, &refused):
		return nil, err
	case err != nil:
		return nil, routing.NewUnavailable(err.Error())
	}
	if err := lines.Encode(bundle.Line{Page: &bundle.Page{More: more}}); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return out.Bytes(), nil
}

// path returns the path of a cluster, or its name if this process does not know it.
func (b *bundlePage) path(cluster logicalcluster.Name) string {
	lc, ok := b.clusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	if !ok || lc.Annotations[core.LogicalClusterPathAnnotationKey] == "" {
		return cluster.String()
	}
	return lc.Annotations[core.LogicalClusterPathAnnotationKey]
}

// objectOf returns what a bundle says of what is stored.
func objectOf(s storage.Stored) bundle.Object {
	o := bundle.Object{Key: s.Key, Revision: s.Revision, Object: s.JSON}
	if s.Fault != nil {
		o.Unreadable = s.Fault.Error()
		return o
	}
	if !clusters.MayBeBuiltIn(path.Base(s.Key)) {
		return o
	}
	var is struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(s.JSON, &is); err == nil && clusters.IsTombstone(&is.Metadata) {
		o.Deleted, o.Object = true, nil
	}
	return o
}

// sealWith returns what becomes of an object that is to be sealed.
func sealWith(query url.Values) (func(bundle.Object) (bundle.Object, error), error) {
	recipients, err := bundle.ParseRecipients(query["sealTo"])
	if err != nil {
		return nil, fmt.Errorf("sealTo: %w", err)
	}
	plain := query.Get("unsealed") == "true"
	switch {
	case len(recipients) > 0 && plain:
		return nil, errors.New("sealTo and unsealed=true are both given: a bundle is sealed or it is not")
	case len(recipients) > 0:
		return func(o bundle.Object) (bundle.Object, error) { return bundle.Seal(o, recipients) }, nil
	case plain:
		return func(o bundle.Object) (bundle.Object, error) { return o, nil }, nil
	}
	return func(o bundle.Object) (bundle.Object, error) {
		return o, apierrors.NewBadRequest(fmt.Sprintf(
			"%s is secret: seal such objects for a recipient of age (regent cluster export --seal-to=age1..., ?sealTo=), or have them in plain text (--unsealed, ?unsealed=true)", o.Key))
	}, nil
}

var _ http.Handler = (*bundlePage)(nil)
