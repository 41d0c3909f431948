// Package endpoints is what a replica answers beside the APIs: how it, its shard and its installation are doing, what
// is asked of its accounts and exports, and that its leader steps down.
package endpoints

import (
	"context"
	"net/http"

	"filippo.io/age"
	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/exports"
	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/moves"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/serviceaccounts"
	"github.com/regent-project/regent/pkg/server/shards"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/survey"
)

// Endpoints are the handlers, by what they need.
type Endpoints struct {
	// Shard and Replica are names, and Lease is the shard's, as namespace/name.
	Shard, Replica, Lease string
	Leadership            Leadership
	// CheckToken refuses a step down that a leader asks for whose term is over.
	CheckToken edge.CheckToken
	Survey     *survey.Survey
	// Raise raises the format of the shard.
	Raise func(context.Context, format.Format) error
	// Identity answers what other shards ask about accounts of this one.
	Identity *identity.Identity
	// Informers has the workspaces that are searched, and Others reads those of other shards; nil: there are none.
	Informers controllers.Informers
	Others    *shards.Reader
	// Exports answers what other shards ask about exports of this one.
	Exports exports.Answers
	// Stored has what is stored, for bundles, and Authorizer says who may read all of it.
	Stored     Stored
	Authorizer authorizer.Authorizer
	// Freezer freezes logical clusters. Elsewhere says who may, by their rights in system:admin, and Formats in
	// which format the shard is.
	Freezer   Freezer
	Elsewhere Allowed
	Formats   func() (format.Formats, format.Record)
	// Moves takes the steps of logical clusters that move to other shards, or come from them, and Changing reads
	// what they have.
	Moves    *moves.Moves
	Changing Changing
	// Live reads what is stored. NowhereElse returns an error unless each other shard says that it does not have a
	// logical cluster; nil: there are no others. BaseURL begins the URLs of logical clusters. Seen returns a
	// revision that etcd has had, and RootCA has the authorities by which clients know the API.
	Live        routing.Live
	NowhereElse func(context.Context, logicalcluster.Name) error
	BaseURL     string
	Seen        func() int64
	RootCA      string
	// InShard has what all logical clusters have stored, for backups, which are sealed for Recipients.
	InShard    StoredInShard
	Recipients []age.Recipient
	// Tally has what was asked for.
	Tally      *fairness.Tally
	Serializer runtime.NegotiatedSerializer
}

// Handlers returns all handlers, by path.
func (e *Endpoints) Handlers() map[string]http.Handler {
	freezing := freeze{freezer: e.Freezer, formats: e.Formats, clusters: e.Informers.LogicalClusters, elsewhere: e.Elsewhere, serializer: e.Serializer}
	out := map[string]http.Handler{
		routing.StepDownPath: &stepDown{
			leadership: e.Leadership, check: e.CheckToken, survey: e.Survey, serializer: e.Serializer, shard: e.Shard, replica: e.Replica, lease: e.Lease,
		},
		status.FormatPath:   &finalize{shard: e.Survey.Shard, raise: e.Raise, serializer: e.Serializer},
		bundle.Path:         &bundlePage{shard: e.Shard, stored: e.Stored, clusters: e.Informers.LogicalClusters, authorizer: e.Authorizer, serializer: e.Serializer},
		bundle.FreezePath:   &freezing,
		bundle.ComingPath:   &coming{freeze: freezing, live: e.Live, nowhereElse: e.NowhereElse, baseURL: e.BaseURL, seen: e.Seen, rootCA: e.RootCA},
		bundle.LeavingPath:  &leaving{freeze: freezing, shard: e.Shard, stored: e.Changing, moves: e.Moves},
		bundle.ArrivingPath: &arriving{freeze: freezing, moves: e.Moves},
		status.BackupPath:   &backupFrame{shard: e.Shard, stored: e.InShard, recipients: e.Recipients, serializer: e.Serializer},
		status.FarewellPath: &farewell{heard: e.Survey.NoteDeparture, serializer: e.Serializer},
	}
	for path, describe := range e.descriptions() {
		out[path] = &statusEndpoint{describe, e.Serializer}
	}
	return out
}

// descriptions returns what answers GET with JSON, by path.
func (e *Endpoints) descriptions() map[string]description {
	top := &top{shard: e.Shard, replica: e.Replica, tally: e.Tally, clusters: e.Informers.LogicalClusters}
	return map[string]description{
		status.ReplicaPath: func(req *http.Request) (any, error) {
			return withStacks(e.Survey.Replica(req.Context()), req.URL.Query().Get(stacksParameter))
		},
		status.ShardPath:        func(req *http.Request) (any, error) { return e.Survey.Shard(req.Context()), nil },
		status.WorkspacesPath:   newSearch(e.Shard, e.Informers.Workspaces, e.Others).describe,
		status.TopPath:          top.describe,
		status.InstallationPath: func(req *http.Request) (any, error) { return e.Survey.Installation(req.Context()), nil },
		status.TermsPath:        func(req *http.Request) (any, error) { return termsOf(req, e.Survey) },
		status.TokenKeysPath:    func(*http.Request) (any, error) { return e.Identity.Issuer.Published() },
		status.AccountPath:      e.account,
		status.ExportPath:       e.export,
	}
}

// account answers what another shard asks about an account of this one.
func (e *Endpoints) account(req *http.Request) (any, error) {
	question, err := serviceaccounts.ReadQuestion(req.URL.Query())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	answer, err := e.Identity.Answer(req.Context(), question)
	if err != nil {
		return nil, routing.NewUnavailable(err.Error())
	}
	return answer, nil
}

// export answers what another shard asks about an export of this one.
func (e *Endpoints) export(req *http.Request) (any, error) {
	question, err := exports.ReadQuestion(req.URL.Query())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	answer, err := e.Exports.Answer(req.Context(), question)
	if err != nil {
		return nil, routing.NewUnavailable(err.Error())
	}
	return answer, nil
}
