package storage

import (
	"context"
	"maps"
	"strconv"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// revisionBits are those of a resource version that are a revision of etcd. The others are the epoch of the logical
// cluster: 30 years of 1,000 writes a second fit, and 8 million epochs.
const revisionBits = 40

// Epochs knows the epochs of logical clusters (see clusters.EpochOf).
type Epochs struct {
	// Of returns the epoch of a logical cluster. 0: the cluster is where it was made. Its error is answered.
	Of func(ctx context.Context, cluster logicalcluster.Name) (int64, error)
	// Resume returns how watches go on that began on the shard from which a logical cluster has moved here.
	Resume func(cluster logicalcluster.Name) Resume
	// Await returns once Of knows nearly all by memory: over all logical clusters it is asked for each object. Its
	// error is answered.
	Await func(ctx context.Context) error
	// MayMove says that there are other shards, to which a logical cluster may move.
	MayMove bool
	// Follow calls a function with the epoch of each logical cluster, once that has changed, and says whether the
	// logical cluster has just come, or left.
	Follow func(is func(cluster logicalcluster.Name, epoch int64, change Change)) (stop func())
}

// Change is what has just become of a logical cluster.
type Change int

// The changes that end watches: the logical cluster has come to the shard, or left it.
const (
	Unchanged Change = iota
	HasCome
	HasLeft
)

// ServeEpochs has clients see the epochs of logical clusters in resource versions from now on. It is called once. The
// returned function ends what it has begun.
func (c *Client) ServeEpochs(e Epochs) (stop func()) {
	c.epochs.Store(&e)
	return e.Follow(c.watches.endOthers)
}

type asStoredKey struct{}

// AsStored returns a context in which resource versions are revisions of etcd, whatever the epoch of the logical
// cluster. It is for what the server asks for itself.
func AsStored(ctx context.Context) context.Context {
	return context.WithValue(ctx, asStoredKey{}, true)
}

// Beneath returns storage over what a RESTOptionsGetter has made, as its own layers are from above: with finalizers,
// and with epochs in resource versions.
func Beneath(below, above storage.Interface) storage.Interface {
	above = WithFinalizers(above)
	if r, ok := below.(*router); ok {
		above = &epochs{above, r.client, r.prefix == resourcePrefix(corev1alpha1.Resource("logicalclusters"))}
	}
	return above
}

// epochs shows resource versions to clients. A logical cluster that has come from another etcd, or from a bundle, has
// an epoch: its objects show the epoch and, behind it, the revision. So versions never fall, however far the two etcds
// are apart, and a version of before is told from one of now: it is older than all, conflicts with updates, and is
// answered with 410. What a client gives is taken apart again.
//
// The process's own requests, and its informers, know revisions only. Over all logical clusters a list has a revision,
// and each object the version that it has in its own.
type epochs struct {
	storage.Interface
	client *Client
	// ofThemselves: the objects are LogicalClusters, which say which epoch theirs is. Whoever follows all of them
	// hears of a new one before Epochs does.
	ofThemselves bool
}

// Versioner implements storage.Interface. It is one that takes no note of versions: those here are no revisions of
// etcd (see history).
func (e *epochs) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// in returns the epoch of the context's logical cluster. It is 0 if versions are to be revisions, and for all clusters.
func (e *epochs) in(ctx context.Context) (epoch int64, everywhere bool, err error) {
	of := e.client.epochs.Load()
	cluster, ok := clusters.From(ctx)
	if !ok || e.isAsStored(ctx, cluster) {
		return 0, false, nil
	}
	if cluster == clusters.Wildcard {
		return 0, true, of.Await(ctx)
	}
	epoch, err = of.Of(ctx, cluster)
	return epoch, false, err
}

// isAsStored reports whether versions are revisions in a context.
func (e *epochs) isAsStored(ctx context.Context, cluster logicalcluster.Name) bool {
	return e.client.epochs.Load() == nil || clusters.IsSystem(cluster) ||
		ctx.Value(asStoredKey{}) != nil || ctx.Value(storedOnlyKey{}) != nil || e.client.config.IsOwn(ctx)
}

// Create implements storage.Interface.
func (e *epochs) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	epoch, _, err := e.in(ctx)
	if err == nil {
		dropVersion(obj)
		err = e.Interface.Create(ctx, key, obj, out, ttl)
	}
	if err == nil && epoch > 0 && out != nil {
		show(out, epoch)
	}
	return err
}

// Delete implements storage.Interface.
func (e *epochs) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	epoch, _, err := e.in(ctx)
	if err != nil {
		return err
	}
	if epoch == 0 {
		return e.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	}
	err = e.Interface.Delete(ctx, key, out, unversioned(preconditions), func(ctx context.Context, obj runtime.Object) error {
		shown := obj.DeepCopyObject()
		show(shown, epoch)
		if err := preconditions.Check(key, shown); err != nil {
			return err
		}
		return validate(ctx, shown)
	}, nil, opts)
	if err == nil {
		showChanged(out, epoch)
	}
	return err
}

// unversioned returns preconditions without the resource version, which is compared as it is shown.
func unversioned(p *storage.Preconditions) *storage.Preconditions {
	if p == nil {
		return nil
	}
	return &storage.Preconditions{UID: p.UID}
}

// GuaranteedUpdate implements storage.Interface.
func (e *epochs) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	epoch, _, err := e.in(ctx)
	if err != nil {
		return err
	}
	if epoch == 0 {
		return e.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, versionless(update), cached)
	}
	err = e.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, unversioned(preconditions), func(there runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		show(there, epoch)
		if err := preconditions.Check(key, there); err != nil {
			return nil, nil, err
		}
		if res.ResourceVersion > 0 {
			res.ResourceVersion |= uint64(epoch) << revisionBits //nolint:gosec // an epoch is positive
		}
		next, ttl, err := update(there, res)
		if err == nil {
			dropVersion(next)
			hide(next, epoch)
		}
		return next, ttl, err
	}, nil)
	if err == nil {
		show(out, epoch)
	}
	return err
}

// Get implements storage.Interface.
func (e *epochs) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	epoch, _, err := e.in(ctx)
	if err == nil && epoch > 0 {
		if opts.ResourceVersion, err = revisionOf(opts.ResourceVersion, epoch); isOlder(err) {
			opts.ResourceVersion, err = "", nil // all that is there is newer
		}
	}
	if err == nil {
		err = e.Interface.Get(ctx, key, opts, out)
	}
	if err == nil && epoch > 0 {
		show(out, epoch)
	}
	return err
}

// GetList implements storage.Interface.
func (e *epochs) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	epoch, everywhere, err := e.in(ctx)
	switch {
	case err != nil:
		return err
	case everywhere:
		opts.ResourceVersion = masked(opts.ResourceVersion)
		if err := e.Interface.GetList(ctx, key, opts, list); err != nil {
			return err
		}
		return e.showEach(ctx, list)
	case epoch == 0:
		return e.Interface.GetList(ctx, key, opts, list)
	}
	exactly := opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.ResourceVersionMatch == "" && opts.Predicate.Limit > 0
	switch opts.ResourceVersion, err = revisionOf(opts.ResourceVersion, epoch); {
	case isOlder(err) && !exactly:
		opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	case err != nil:
		return err
	}
	if opts.Predicate.Continue, err = continued(opts.Predicate.Continue, epoch); err != nil {
		return err
	}
	if err := e.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	return showList(list, func(metav1.Object) (int64, error) { return epoch, nil }, epoch)
}

// showEach shows the objects of a list over all logical clusters.
func (e *epochs) showEach(ctx context.Context, list runtime.Object) error {
	return showList(list, func(obj metav1.Object) (int64, error) { return e.of(ctx, obj) }, 0)
}

// of returns the epoch of an object's logical cluster.
func (e *epochs) of(ctx context.Context, obj metav1.Object) (int64, error) {
	cluster := logicalcluster.From(obj)
	switch {
	case cluster == "" || clusters.IsSystem(cluster):
		return 0, nil
	case e.ofThemselves:
		return clusters.EpochOf(obj), nil
	}
	return e.client.epochs.Load().Of(ctx, cluster)
}

// showList shows the objects of a list, and the list itself if that has an epoch. Items of lists are their own: they
// share no more than what they refer to.
func showList(list runtime.Object, of func(metav1.Object) (int64, error), epoch int64) error {
	if epoch > 0 {
		if is, err := meta.ListAccessor(list); err == nil {
			is.SetResourceVersion(shownAs(is.GetResourceVersion(), epoch))
			if token := is.GetContinue(); token != "" {
				is.SetContinue(strconv.FormatInt(epoch, 10) + "." + token)
			}
		}
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		is, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		epoch, err := of(is)
		if err == nil && epoch > 0 {
			show(item, epoch)
		}
		return err
	})
}

// Watch implements storage.Interface. A watch is of one epoch of its logical cluster, and ends with that.
func (e *epochs) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	from, err := e.watch(ctx, key, opts, cancel)
	if err != nil {
		cancel()
	}
	return from, err
}

func (e *epochs) watch(ctx context.Context, key string, opts storage.ListOptions, cancel context.CancelFunc) (watch.Interface, error) {
	epoch, everywhere, entered, err := e.enter(ctx, cancel)
	if err != nil {
		return nil, err
	}
	leave := entered.leave
	switch {
	case everywhere:
		opts.ResourceVersion = masked(opts.ResourceVersion)
	case epoch > 0:
		version := opts.ResourceVersion
		opts.ResourceVersion, err = revisionOf(version, epoch)
		if isOlder(err) {
			if from, ok := e.resumed(ctx, key, version); ok {
				opts.ResourceVersion, err = from, nil
			}
		}
		if isOlder(err) && opts.SendInitialEvents != nil && *opts.SendInitialEvents {
			opts.ResourceVersion, err = "", nil // it gets all there is
		}
	}
	var from watch.Interface
	if err == nil {
		from, err = e.Interface.Watch(ctx, key, opts)
	}
	switch {
	case err != nil:
		leave()
		return nil, err
	case !entered.serve(from):
		leave()
		return nil, errLeft
	case !everywhere && epoch == 0:
		return &leaving{from, func() { leave(); cancel() }}, nil
	}
	w := &epochsWatch{from: from, events: make(chan watch.Event, eventsAhead), cancel: cancel, ended: make(chan struct{})}
	w.of = func(obj metav1.Object) (int64, error) {
		if everywhere {
			return e.of(ctx, obj)
		}
		return epoch, nil
	}
	go w.run(ctx, leave)
	return w, nil
}

// resumed returns the revision from which a watch goes on that was told of a version on the shard that the logical
// cluster was on before. ok is false if it may have missed something, and has to list again.
func (e *epochs) resumed(ctx context.Context, key, version string) (from string, ok bool) {
	cluster, _ := clusters.From(ctx)
	return e.client.epochs.Load().Resume(cluster).from(bundle.ResourceOf(strings.Trim(key, "/")+"/"), version)
}

// enter returns the epoch of a watch that begins, and what is to leave when it has ended. end is called when the
// logical cluster is of another epoch.
func (e *epochs) enter(ctx context.Context, end context.CancelFunc) (epoch int64, everywhere bool, entered *openWatch, err error) {
	cluster, _ := clusters.From(ctx)
	for {
		epoch, everywhere, err := e.in(ctx)
		if err != nil || everywhere || e.isAsStored(ctx, cluster) {
			return epoch, everywhere, &openWatch{}, err
		}
		entered := e.client.watches.add(cluster, epoch, end)
		if again, _, err := e.in(ctx); err == nil && again == epoch {
			return epoch, false, entered, nil
		}
		entered.leave() // it has just changed
	}
}

// leaving is a watch that tells when it is stopped.
type leaving struct {
	watch.Interface
	leave func()
}

// Stop implements watch.Interface.
func (l *leaving) Stop() {
	l.Interface.Stop()
	l.leave()
}

// epochsWatch is a watch whose objects show epochs.
type epochsWatch struct {
	from   watch.Interface
	of     func(metav1.Object) (int64, error)
	events chan watch.Event
	cancel context.CancelFunc
	ended  chan struct{}
}

// ResultChan implements watch.Interface.
func (w *epochsWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface. It returns when nothing of the watch runs any more.
func (w *epochsWatch) Stop() {
	w.cancel()
	<-w.ended
}

func (w *epochsWatch) run(ctx context.Context, leave func()) {
	defer close(w.ended)
	defer leave()
	defer close(w.events)
	defer w.from.Stop()
	defer w.cancel()
	for {
		var event watch.Event
		select {
		case <-ctx.Done():
			return
		case stored, ok := <-w.from.ResultChan():
			if !ok {
				return
			}
			event = w.showEvent(stored)
		}
		select {
		case w.events <- event:
		case <-ctx.Done():
			return
		}
		if event.Type == watch.Error {
			return
		}
	}
}

// showEvent returns an event as clients see it. What watches share is left alone, and copied if it changes.
func (w *epochsWatch) showEvent(event watch.Event) watch.Event {
	if event.Type == watch.Error {
		return event
	}
	epoch, err := w.epochOf(event.Object)
	if err != nil { // the client lists again
		return watch.Event{Type: watch.Error, Object: statusOf(apierrors.NewResourceExpired(err.Error()))}
	}
	if epoch == 0 {
		return event
	}
	as := show
	if event.Type == watch.Deleted {
		as = showChanged
	}
	if shared, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = shared.GetObject() // which copies it
	} else {
		event.Object = event.Object.DeepCopyObject()
	}
	as(event.Object, epoch)
	return event
}

// epochOf returns the epoch that an object shows. What watches share tells its metadata without a copy, if it can.
func (w *epochsWatch) epochOf(obj runtime.Object) (int64, error) {
	is := metadataOf(obj)
	if shared, ok := obj.(runtime.CacheableObject); ok && is == nil {
		is = metadataOf(shared.GetObject())
	}
	if is == nil {
		return 0, nil
	}
	return w.of(is)
}

// metadataOf returns nil for what is no object, and has no version.
func metadataOf(obj runtime.Object) metav1.Object {
	is, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return is
}

func statusOf(err *apierrors.StatusError) *metav1.Status { return &err.ErrStatus }

// show gives an object the version that clients see of it.
func show(obj runtime.Object, epoch int64) {
	var before string
	was := false
	if is := metadataOf(unshared(obj)); is != nil {
		before, was = takeVersion(is, epoch)
	}
	setVersion(obj, func(version string) string {
		if was {
			return before
		}
		return shownAs(version, epoch)
	})
}

// showChanged is show for an object that has just changed, though its content may be that of before.
func showChanged(obj runtime.Object, epoch int64) {
	dropVersion(unshared(obj))
	setVersion(obj, func(version string) string { return shownAs(version, epoch) })
}

// hide gives an object the version that it has in etcd, if it has the one that clients see.
func hide(obj runtime.Object, epoch int64) {
	setVersion(obj, func(version string) string {
		if revision, err := revisionOf(version, epoch); err == nil {
			return revision
		}
		return version
	})
}

func setVersion(obj runtime.Object, as func(string) string) {
	is := metadataOf(obj)
	if is == nil {
		return
	}
	was := is.GetResourceVersion()
	version := as(was)
	if version == was {
		return
	}
	_ = unshared(obj)
	is.SetResourceVersion(version)
}

// unshared makes the metadata of a custom object its own: it may be shared with others.
func unshared(obj runtime.Object) runtime.Object {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		content := maps.Clone(custom.Object)
		if of, ok := custom.Object["metadata"].(map[string]any); ok {
			content["metadata"] = maps.Clone(of)
		}
		custom.Object = content
	}
	return obj
}

// numberOf returns 0 for what is no version, which others refuse.
func numberOf(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// shownAs returns the version of a revision.
func shownAs(revision string, epoch int64) string {
	n := numberOf(revision)
	if n == 0 {
		return revision
	}
	return strconv.FormatInt(epoch<<revisionBits|n, 10)
}

// errOlder is of a version that a logical cluster had before it came: nobody knows any more what has changed since.
var errOlder = apierrors.NewResourceExpired("the resource version is of before the workspace came to this shard: list again")

func isOlder(err error) bool { return err == errOlder } //nolint:errorlint // it is that very one

// revisionOf returns the revision of a version that a client gives. Those of an earlier epoch are errOlder, and for
// those of a later one the client has to wait: another replica knows more.
func revisionOf(version string, epoch int64) (string, error) {
	n := numberOf(version)
	if n == 0 {
		return version, nil
	}
	switch of := n >> revisionBits; {
	case of < epoch:
		return version, errOlder
	case of > epoch:
		return version, storage.NewTooLargeResourceVersionError(uint64(n), uint64(epoch)<<revisionBits, 1) //nolint:gosec // both are positive
	}
	return masked(version), nil
}

// masked returns the revision of a version, of whatever epoch.
func masked(version string) string {
	n := numberOf(version)
	if n == 0 {
		return version
	}
	return strconv.FormatInt(n&(1<<revisionBits-1), 10)
}

// continued returns the token of a list's next page without its epoch.
func continued(token string, epoch int64) (string, error) {
	if token == "" {
		return "", nil
	}
	of, rest, ok := strings.Cut(token, ".")
	if !ok || of != strconv.FormatInt(epoch, 10) {
		return "", errOlder
	}
	return rest, nil
}
