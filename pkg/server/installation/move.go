package installation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// Moved is a logical cluster that was moved.
type Moved struct {
	Path    string `json:"path"`
	Cluster string `json:"cluster"`
	From    string `json:"from"`
	To      string `json:"to"`
	Objects int64  `json:"objects"`
	// Took is how long all of it took, and Frozen for how long writes waited at most.
	Took   time.Duration `json:"took"`
	Frozen time.Duration `json:"frozen"`
}

const (
	// moveTries is how often a move is begun that others or a fault have stopped, and movePause is before the next.
	moveTries = 10
	movePause = 2 * time.Second
	// fewBytes is how much is left to be copied when writes are made to wait, and catchUps is how often it is
	// waited for that so little is left: a cluster may be written faster than it is copied. Then they wait for as
	// long as the last look at what has changed took, longestRest at the most.
	fewBytes, fewObjects = 64 << 10, 100
	catchUps             = 20
	longestRest          = 2 * time.Second
	// writeBytes is how many bytes of objects are sent at once, and as many as the last one has.
	writeBytes = 2 << 20
	// moveRenewal is how often a freeze is renewed, which lasts for ten seconds.
	moveRenewal = 2 * time.Second
	// settleTimeout is how long the shard of the Workspace may take to write where its cluster is, and settlePause
	// how often it is looked at.
	settleTimeout, settlePause = 30 * time.Second, 50 * time.Millisecond
	// undoTimeout is how long it may take to undo what ends by itself, too.
	undoTimeout = 10 * time.Second
)

// ErrThere is of a logical cluster that is on the shard already.
var ErrThere = errors.New("it is on that shard already")

// Move moves the logical cluster at a path, without those below it, to a shard. Its users may go on meanwhile. Before
// its switch a move that fails is undone, and begun again if that may help; after it, it is ended by the shards. tell
// is called with how many objects have been copied, and how many there were at the beginning; nil: nobody is told.
func (a *Admin) Move(ctx context.Context, path logicalcluster.Path, to string, tell func(path string, copied, of int64)) (*Moved, error) {
	began := time.Now()
	var decided *Moved
	for try := 1; ; try++ {
		moved, err := a.moveOnce(ctx, path, to, tell)
		if errors.Is(err, ErrThere) && decided != nil { // by an earlier try, whose end was not known
			moved, err = decided, nil
		}
		if err == nil {
			moved.Took = time.Since(began)
			return moved, nil
		}
		if moved != nil {
			decided = moved
		}
		if try == moveTries || !mayHelp(err) || ctx.Err() != nil {
			return nil, fmt.Errorf("move %s to shard %s: %w", path, to, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("move %s to shard %s: %w: %w", path, to, context.Cause(ctx), err)
		case <-time.After(movePause):
		}
	}
}

// MoveAll moves the logical cluster at a path, and then those below it, to a shard. moved is called with each, but not
// with those that are there already. It stops at the first that does not move.
func (a *Admin) MoveAll(ctx context.Context, path logicalcluster.Path, to string, tell func(path string, copied, of int64), moved func(*Moved)) error {
	one, err := a.Move(ctx, path, to, tell)
	if err != nil && !errors.Is(err, ErrThere) {
		return err
	}
	if err == nil {
		moved(one)
	}
	below, err := a.below(ctx, path, to)
	if err != nil {
		return fmt.Errorf("find the workspaces below %s: %w", path, err)
	}
	for _, name := range below {
		if err := a.MoveAll(ctx, path.Join(name), to, tell, moved); err != nil {
			return err
		}
	}
	return nil
}

// below returns the workspaces in a logical cluster that is on a shard.
func (a *Admin) below(ctx context.Context, path logicalcluster.Path, on string) (names []string, err error) {
	m := &mover{}
	defer m.close()
	shard, err := a.ask(ctx, on, m)
	if err != nil {
		return nil, err
	}
	for next := ""; ; {
		answer, err := shard.do(ctx, shard.client.Get().AbsPath(path.RequestPath()+"/apis/tenancy.kcp.io/v1alpha1/workspaces").Param("limit", "500").Param("continue", next))
		if err != nil {
			return nil, err
		}
		list := &tenancyv1alpha1.WorkspaceList{}
		if err := json.Unmarshal(answer, list); err != nil {
			return nil, fmt.Errorf("shard %s: its list of workspaces cannot be read: %w", on, err)
		}
		for i := range list.Items {
			if ws := &list.Items[i]; ws.Spec.Cluster != "" && ws.DeletionTimestamp == nil && ws.Spec.Mount == nil {
				names = append(names, ws.Name)
			}
		}
		if next = list.Continue; next == "" {
			return names, nil
		}
	}
}

// mayHelp reports whether a move may succeed when it is begun again.
func mayHelp(err error) bool {
	if errors.Is(err, errInterrupted) || errors.Is(err, errTooBusy) {
		return false
	}
	status := apierrors.APIStatus(nil)
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusConflict || code == http.StatusGone
	}
	return !errors.Is(err, ErrThere) && !errors.Is(err, errNowhere) && !errors.Is(err, errNoMember)
}

// errTooBusy is of a logical cluster that is written faster than it is copied.
var errTooBusy = errors.New("the workspace is written faster than it is copied: move it at a calmer time")

// errNowhere is of a path that leads to no logical cluster.
var errNowhere = errors.New("no shard has such a workspace")

// errNoMember is of a shard that the installation does not have.
var errNoMember = errors.New("is no member of the installation: regent shard list has those that are")

// moveOnce moves it, or fails. With an error it returns what was moved if nobody knows whether that is done.
func (a *Admin) moveOnce(ctx context.Context, path logicalcluster.Path, to string, tell func(path string, copied, of int64)) (*Moved, error) {
	m := &mover{id: rand.String(12), tell: tell}
	defer m.close()
	var err error
	if m.destination, err = a.ask(ctx, to, m); err != nil {
		return nil, err
	}
	if m.origin, m.lc, err = a.find(ctx, path, m); err != nil {
		return nil, err
	}
	if m.origin.name == to {
		return nil, ErrThere
	}
	m.cluster = logicalcluster.From(m.lc)
	if err = m.move(ctx); err == nil {
		err = a.settled(ctx, m)
	}
	if err != nil && !m.isDecided {
		return nil, err
	}
	return &Moved{Path: pathOf(m.lc), Cluster: m.cluster.String(), From: m.origin.name, To: to, Objects: m.objects, Frozen: m.frozen}, err
}

// shardClient is a shard, as a move asks it.
type shardClient struct {
	name   string
	client *rest.RESTClient
}

// ask returns how a member is asked, until m is closed.
func (a *Admin) ask(ctx context.Context, name string, m *mover) (*shardClient, error) {
	all, err := a.members(ctx)
	if err != nil {
		return nil, err
	}
	member := memberOf(all, name)
	if member == nil {
		return nil, fmt.Errorf("shard %q %w", name, errNoMember)
	}
	return a.askMember(member, m)
}

func (a *Admin) askMember(member *corev1alpha1.Shard, m *mover) (*shardClient, error) {
	config, transport, through, err := a.transportTo(member)
	if err != nil {
		return nil, err
	}
	m.open = append(m.open, transport)
	config.ContentConfig = rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion(), GroupVersion: &corev1alpha1.SchemeGroupVersion}
	config.QPS = -1
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{Transport: through})
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig for shard %s: %w", member.Name, err)
	}
	return &shardClient{member.Name, client}, nil
}

// find returns the shard that has the logical cluster at a path, and its LogicalCluster.
func (a *Admin) find(ctx context.Context, path logicalcluster.Path, m *mover) (*shardClient, *corev1alpha1.LogicalCluster, error) {
	all, err := a.members(ctx)
	if err != nil {
		return nil, nil, err
	}
	shards, found, faults := make([]*shardClient, len(all)), make([]*corev1alpha1.LogicalCluster, len(all)), make([]error, len(all))
	for n, member := range all {
		if shards[n], err = a.askMember(member, m); err != nil {
			return nil, nil, err
		}
	}
	var asking sync.WaitGroup
	for n, shard := range shards {
		asking.Go(func() { found[n], faults[n] = shard.logicalCluster(ctx, path) })
	}
	asking.Wait()
	var at []int
	var silent, away []error
	for n, shard := range shards {
		status := apierrors.APIStatus(nil)
		switch {
		case faults[n] == nil && !clusters.IsComing(found[n]):
			at = append(at, n)
		case errors.As(faults[n], &status) && clusters.MoveIn(status.Status()) != clusters.Move{}:
			to := clusters.MoveIn(status.Status()).Shard
			away = append(away, fmt.Errorf("it has moved from shard %s to shard %s, whose leader has not ended that yet: regent status shows what it waits for; if shard %s was restored from a backup, run regent shard reconcile %s", shard.name, to, to, to))
		case faults[n] != nil && !(errors.As(faults[n], &status) && status.Status().Code < http.StatusInternalServerError):
			silent = append(silent, fmt.Errorf("shard %s does not say whether it has it: %w", shard.name, faults[n]))
		}
	}
	switch {
	case len(at) == 1:
		return shards[at[0]], found[at[0]], nil
	case len(at) > 1:
		return nil, nil, fmt.Errorf("%w, that is, several say that they have it, such as %s and %s: one was restored from a backup (run regent shard reconcile with its name), or is another installation's", errNowhere, shards[at[0]].name, shards[at[1]].name)
	case len(silent) > 0:
		return nil, nil, errors.Join(silent...)
	case len(away) > 0:
		return nil, nil, errors.Join(away...)
	}
	return nil, nil, fmt.Errorf("%w: %s", errNowhere, path)
}

func (s *shardClient) logicalCluster(ctx context.Context, path logicalcluster.Path) (*corev1alpha1.LogicalCluster, error) {
	lc := &corev1alpha1.LogicalCluster{}
	answer, err := s.do(ctx, s.client.Get().AbsPath(path.RequestPath()+"/apis/core.kcp.io/v1alpha1/logicalclusters/"+corev1alpha1.LogicalClusterName))
	if err == nil {
		err = json.Unmarshal(answer, lc)
	}
	return lc, err
}

// do makes a request once: what may have been done must not be done later, too.
func (s *shardClient) do(ctx context.Context, req *rest.Request) ([]byte, error) {
	result := req.MaxRetries(0).SetHeader("Accept", "application/json").Do(ctx)
	if err := result.Error(); err != nil { // that of Raw does not say why
		return nil, fmt.Errorf("shard %s: %w", s.name, err)
	}
	return result.Raw()
}

// mover moves one logical cluster, once.
type mover struct {
	id                  string
	open                []*http.Transport
	origin, destination *shardClient
	cluster             logicalcluster.Name
	lc                  *corev1alpha1.LogicalCluster

	arriving bundle.Frozen
	leaving  bundle.Departure
	// through is the revision of the origin up to which all was copied, and hasBound says that APIBindings have
	// been since their schemas were.
	through  int64
	hasBound bool
	recent   bundle.Recent
	lines    bytes.Buffer
	objects  int64
	tell     func(path string, copied, of int64)
	// began is when writes began to wait, and frozen for how long they did.
	began  time.Time
	frozen time.Duration
	// isDecided: it has moved, or may have.
	isDecided bool

	mu sync.Mutex
	// renewed is when the freeze of the destination was last known to hold.
	renewed time.Time
}

func (m *mover) close() {
	for _, one := range m.open {
		one.CloseIdleConnections()
	}
}

// move takes all steps, and undoes them if it fails before the switch.
func (m *mover) move(ctx context.Context) (err error) {
	if err := m.begin(ctx); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	renewal, stop := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer stop()
	defer func() {
		end(nil)
		if err != nil && !m.isDecided {
			m.undo(context.WithoutCancel(ctx))
		}
	}()
	renewing.Go(func() { m.renew(renewal, end) })
	if err := m.copy(ctx); err != nil {
		return because(ctx, err)
	}
	if err := m.leave(ctx); err != nil {
		return because(ctx, err)
	}
	if m.isDecided, err = m.depart(ctx); err != nil {
		return because(ctx, err)
	}
	stop() // the cluster's arrival ends the freeze
	renewing.Wait()
	if err := m.arrive(ctx); err != nil {
		return fmt.Errorf("it is moving, and shard %s ends that within some seconds: %w", m.destination.name, because(ctx, err))
	}
	m.frozen = time.Since(m.began)
	return nil
}

func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

// here returns a request to the destination, and there one to the origin.
func (m *mover) here(verb string, body []byte) *rest.Request {
	req := m.destination.client.Verb(verb).AbsPath(clusters.RequestPath(clusters.SystemAdmin) + bundle.ArrivingPath)
	if m.arriving.Freeze != "" {
		req = req.Param("cluster", m.cluster.String()).Param("freeze", m.arriving.Freeze).Param("from", m.origin.name).Param("move", m.id)
	}
	if body != nil {
		req = req.Body(body)
	}
	return req
}

func (m *mover) there(verb string) *rest.Request {
	req := m.origin.client.Verb(verb).AbsPath(clusters.RequestPath(m.cluster) + bundle.LeavingPath)
	if verb != http.MethodGet {
		req = req.Param("to", m.destination.name).Param("move", m.id)
	}
	if verb != http.MethodGet && m.leaving.Freeze != "" {
		req = req.Param("freeze", m.leaving.Freeze)
	}
	return req
}

// errInterrupted is of a move whose freeze somebody else has ended: see Admin.CancelMove.
var errInterrupted = errors.New("somebody has cancelled the move, or the new shard's etcd was restored")

// mustHold is for how long a freeze surely holds that was renewed: ten seconds, less how long an answer may take.
const mustHold = 7 * time.Second

func isThawed(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// atDestination makes a request that renews the freeze.
func (m *mover) atDestination(ctx context.Context, req *rest.Request) ([]byte, error) {
	began := time.Now()
	answer, err := m.destination.do(ctx, req)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.renewed = began
	case isThawed(err) && time.Since(m.renewed) < mustHold:
		return nil, fmt.Errorf("%w: %w", errInterrupted, err)
	}
	return answer, err
}

func (m *mover) begin(ctx context.Context) error {
	lc, err := json.Marshal(m.lc)
	if err != nil {
		return fmt.Errorf("encode the LogicalCluster: %w", err)
	}
	body, err := json.Marshal(bundle.Arriving{LogicalCluster: lc, Shard: m.origin.name, Move: m.id, OwnerShard: clusters.ShardOf(m.lc, clusters.OwnerShardLabel, m.origin.name)})
	if err != nil {
		return fmt.Errorf("encode what arrives: %w", err)
	}
	answer, err := m.atDestination(ctx, m.here(http.MethodPost, body))
	if err == nil {
		err = json.Unmarshal(answer, &m.arriving)
	}
	return err
}

// renew renews the freeze of the destination until the context ends, and ends it if the freeze has.
func (m *mover) renew(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(moveRenewal)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := m.atDestination(ctx, m.here(http.MethodPut, nil)); isThawed(err) {
			end(err)
			return
		}
	}
}

// copy copies all that is there, and then what has changed meanwhile, until little is left.
func (m *mover) copy(ctx context.Context) error {
	answer, err := m.origin.do(ctx, m.there(http.MethodGet).Param("recent", "true"))
	if err == nil {
		err = json.Unmarshal(answer, &m.recent)
	}
	if err != nil {
		return err
	}
	m.through = m.recent.Revision
	for after, more := "", true; more; {
		req := m.there(http.MethodGet).Param("revision", strconv.FormatInt(m.through, 10)).Param("after", after)
		if more, after, err = m.take(ctx, req); err != nil {
			return err
		}
	}
	for n := 1; ; n++ {
		before, began := m.objects, time.Now()
		if err := m.changes(ctx); err != nil {
			return err
		}
		isFew := m.lines.Len() <= fewBytes && m.objects-before <= fewObjects
		if err := m.flush(ctx); err != nil {
			return err
		}
		took := time.Since(began)
		if n == catchUps && took > longestRest {
			return fmt.Errorf("%w: %d objects have changed within %v, in which they were copied", errTooBusy, m.objects-before, took.Round(time.Millisecond))
		}
		if isFew || n == catchUps {
			return m.schemas(ctx)
		}
	}
}

// schemas has the destination keep the schemas that the cluster has bound, if what it has bound was copied since. They
// come after the bindings: the destination removes schemas that nobody uses.
func (m *mover) schemas(ctx context.Context) error {
	if !m.hasBound {
		return nil
	}
	m.hasBound = false
	var bound bundle.SchemaNames
	answer, err := m.origin.do(ctx, m.there(http.MethodGet).Param("schemas", "true"))
	if err == nil {
		err = json.Unmarshal(answer, &bound)
	}
	if err != nil {
		return err
	}
	for _, name := range bound.Schemas {
		schema, err := m.origin.do(ctx, m.there(http.MethodGet).Param("schema", name))
		if apierrors.IsNotFound(err) { // it is bound no more
			continue
		}
		if err == nil {
			_, err = m.atDestination(ctx, m.here(http.MethodPut, schema).Param("schema", name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// changes takes what has changed since all was copied, and leaves the last of it unsent.
func (m *mover) changes(ctx context.Context) error {
	for more := true; more; {
		var err error
		if more, _, err = m.take(ctx, m.since()); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) since() *rest.Request {
	return m.there(http.MethodGet).Param("since", strconv.FormatInt(m.through, 10))
}

// take reads what the origin answers with, and has it written.
func (m *mover) take(ctx context.Context, req *rest.Request) (more bool, after string, err error) {
	answer, err := m.origin.do(ctx, req)
	if err != nil {
		return false, "", err
	}
	ended := false
	at := m.through
	latest := map[string][]byte{}
	var order []string
	for text := range bytes.Lines(answer) {
		var line bundle.Line
		if err := json.Unmarshal(text, &line); err != nil {
			return false, "", fmt.Errorf("shard %s: its answer cannot be read: %w", m.origin.name, err)
		}
		switch {
		case line.Header != nil:
			at = line.Header.Revision
		case line.Page != nil:
			more, ended = line.Page.More, true
		case line.Object != nil:
			after = line.Object.Key
			m.note(after, line.Object.Revision)
			m.hasBound = m.hasBound || strings.HasPrefix(after, bundle.BindingKeys)
			if _, ok := latest[after]; !ok {
				order = append(order, after)
			}
			if latest[after], err = json.Marshal(line.Object); err != nil {
				return false, "", err
			}
		}
	}
	if !ended {
		return false, "", fmt.Errorf("shard %s: its answer was cut off", m.origin.name)
	}
	// Each object is sent once in a request, as it was last: those of one request are written in no order. So what
	// is sent later must not be in the same one as what was before.
	if err := m.flush(ctx); err != nil {
		return false, "", err
	}
	for _, key := range order {
		m.lines.Write(latest[key])
		m.lines.WriteByte('\n')
		m.objects++
		if m.lines.Len() >= writeBytes {
			if err := m.flush(ctx); err != nil {
				return false, "", err
			}
		}
	}
	m.through = at
	return more, after, nil
}

// note records when a resource has changed last.
func (m *mover) note(key string, revision int64) {
	if m.recent.Last == nil {
		m.recent.Last = map[string]int64{}
	}
	of := bundle.ResourceOf(key)
	m.recent.Last[of] = max(m.recent.Last[of], revision)
}

// flush returns once all is written that was taken.
func (m *mover) flush(ctx context.Context) error {
	if m.lines.Len() == 0 {
		return nil
	}
	body := bytes.Clone(m.lines.Bytes())
	m.lines.Reset()
	if m.tell != nil {
		m.tell(pathOf(m.lc), m.objects, max(m.objects, m.recent.Objects))
	}
	_, err := m.atDestination(ctx, m.here(http.MethodPut, body))
	return err
}

// leave makes writes wait, copies the rest, and has the destination check that all is there.
func (m *mover) leave(ctx context.Context) error {
	if err := m.freeze(ctx); err != nil {
		return err
	}
	for m.through < m.leaving.Revision { // there was more than one answer may have, or it took long
		before := m.through
		if err := m.changes(ctx); err != nil {
			return err
		}
		if m.through > before {
			continue
		}
		return fmt.Errorf("shard %s has told of changes up to revision %d only, and is frozen at %d", m.origin.name, m.through, m.leaving.Revision)
	}
	if err := m.flush(ctx); err != nil {
		return err
	}
	if err := m.schemas(ctx); err != nil {
		return err
	}
	m.objects = m.leaving.Objects
	body, err := json.Marshal(bundle.Arriving{LogicalCluster: m.leaving.LogicalCluster, Objects: m.leaving.Objects, Since: m.recent.Since, Last: m.recent.Last, Until: m.leaving.Revision})
	if err != nil {
		return fmt.Errorf("encode what arrives: %w", err)
	}
	_, err = m.atDestination(ctx, m.here(http.MethodPatch, body))
	return err
}

// watchIn is how long etcd may take to tell a watch of changes that begins in the past: it does so every 100 ms.
const watchIn = 120 * time.Millisecond

// freeze makes writes wait. What was written last is asked for before, so that it is here at once.
func (m *mover) freeze(ctx context.Context) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var waiting sync.WaitGroup
	var failed error
	last := m.since().Param("until", m.id)
	waiting.Go(func() { _, _, failed = m.take(within, last) })
	select {
	case <-ctx.Done():
	case <-time.After(watchIn):
	}
	m.began = time.Now()
	answer, err := m.origin.do(ctx, m.there(http.MethodPost))
	if err == nil {
		err = json.Unmarshal(answer, &m.leaving)
	}
	if err != nil {
		cancel()
	}
	waiting.Wait()
	return cmp.Or(err, failed)
}

// depart makes the cluster one of the destination. It is decided, too, if nobody knows whether it was done.
func (m *mover) depart(ctx context.Context) (decided bool, err error) {
	_, err = m.origin.do(ctx, m.there(http.MethodPost))
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &status):
		return true, fmt.Errorf("whether it moves is decided, and not known here: %w", err)
	case clusters.MoveIn(status.Status()) == clusters.Move{Shard: m.destination.name, ID: m.id}:
		return true, nil
	}
	return status.Status().Code >= http.StatusInternalServerError, err
}

func (m *mover) arrive(ctx context.Context) error {
	_, err := m.atDestination(ctx, m.here(http.MethodPost, nil))
	return err
}

// undo lets the cluster stay where it was. What fails ends by itself.
func (m *mover) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	if m.leaving.Freeze != "" {
		_, _ = m.origin.do(ctx, m.there(http.MethodDelete))
	}
	_, _ = m.destination.do(ctx, m.here(http.MethodDelete, nil))
}

// settled returns once the Workspace of the cluster says where that is now. Without it the move is done, too; but those
// above and below the cluster wait for it.
func (a *Admin) settled(ctx context.Context, m *mover) error {
	owner := m.lc.Spec.Owner
	at := clusters.ShardOf(m.lc, clusters.OwnerShardLabel, m.origin.name)
	shard, err := a.ask(ctx, at, m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		ws := &tenancyv1alpha1.Workspace{}
		answer, err := shard.do(ctx, shard.client.Get().AbsPath(clusters.RequestPath(logicalcluster.Name(owner.Cluster))+"/apis/tenancy.kcp.io/v1alpha1/workspaces/"+owner.Name))
		if err == nil {
			err = json.Unmarshal(answer, ws)
		}
		if err == nil && clusters.HomeOf(ws, at) == m.destination.name {
			return nil
		}
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && clusters.MoveIn(status.Status()).Shard != "" {
			at = clusters.MoveIn(status.Status()).Shard // the Workspace moves, too
			if shard, err = a.ask(ctx, at, m); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it has moved to shard %s, and shard %s, which has its Workspace, does not say so yet: %w", m.destination.name, at, cmp.Or(err, ctx.Err()))
		case <-time.After(settlePause):
		}
	}
}
