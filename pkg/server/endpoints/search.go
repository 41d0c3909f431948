package endpoints

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/shards"
	"github.com/regent-project/regent/pkg/server/status"
)

const (
	// mostFound is how many workspaces an answer may have, and how many it has by default.
	mostFound, defaultFound = 500, 50
	// searchPatience is how long one replica of another shard may take, and searchLimit how many bytes its answer
	// may have.
	searchPatience, searchLimit = time.Second, 1 << 20
	// searchPage is how many workspaces are looked at before the informer is left alone for a moment.
	searchPage = 1000
)

// search finds workspaces by a part of their path: in the informers of this process, and in other shards by asking
// them.
type search struct {
	shard      string
	workspaces *clusters.Informer[*tenancyv1alpha1.Workspace]
	// others are the names of the other shards, and ask asks one of them. others is nil for a lone shard.
	others func() []string
	ask    func(ctx context.Context, shard, path string, each time.Duration, limit int64) ([]byte, error)
	// answers reports whether a shard is this one, or is heard. It is nil for a lone shard.
	answers func(shard string) bool
}

// newSearch returns a search of a shard. others reads other shards; nil: there are none.
func newSearch(shard string, workspaces *clusters.Informer[*tenancyv1alpha1.Workspace], others *shards.Reader) *search {
	s := &search{shard: shard, workspaces: workspaces}
	if others != nil {
		s.others = func() []string { return slices.Collect(maps.Keys(others.Peers())) }
		s.ask = others.Ask
		s.answers = others.Answers
	}
	return s
}

// describe is a description. A member of the installation is told of this shard only: it asks the others itself.
func (s *search) describe(req *http.Request) (any, error) {
	who, _ := apirequest.UserFrom(req.Context())
	return s.find(req.Context(), req.URL.Query(), identity.IsMember(who))
}

// find answers a search. A member of the installation asks for what this shard has (here).
func (s *search) find(ctx context.Context, query url.Values, here bool) (status.Workspaces, error) {
	text, limit := query.Get("search"), defaultFound
	if given := query.Get("limit"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 || n > mostFound {
			return status.Workspaces{}, apierrors.NewBadRequest(fmt.Sprintf("limit=%q must be a number from 1 to %d", given, mostFound))
		}
		limit = n
	}
	if text == "" || len(text) > 512 {
		return status.Workspaces{}, apierrors.NewBadRequest("search must be a part of a path, as in search=root:team")
	}
	out := s.here(ctx, text, limit)
	if !here && s.others != nil {
		s.addOthers(ctx, url.Values{"search": {text}, "limit": {strconv.Itoa(limit)}}, &out)
	}
	slices.SortFunc(out.Items, func(a, b status.Workspace) int { return strings.Compare(a.Path, b.Path) })
	if len(out.Items) > limit {
		out.Items, out.More = out.Items[:limit], true
	}
	return out, nil
}

func (s *search) here(ctx context.Context, text string, limit int) status.Workspaces {
	out := status.Workspaces{Items: []status.Workspace{}}
	var page []*tenancyv1alpha1.Workspace
	for after := (clusters.Key{}); ctx.Err() == nil; {
		page, after = s.workspaces.Page(clusters.Range{}, after, searchPage)
		for _, ws := range page {
			path := controllers.PathOf(ws)
			if !strings.Contains(path, text) {
				continue
			}
			if len(out.Items) == limit {
				out.More = true
				return out
			}
			out.Items = append(out.Items, status.Workspace{
				Path: path, Cluster: ws.Spec.Cluster, Phase: string(ws.Status.Phase), Shard: s.shard,
				Home: clusters.HomeOf(ws, s.shard), Unreachable: clusters.IsUnreachable(ws, s.shard, s.answers),
			})
		}
		if after == (clusters.Key{}) {
			break
		}
	}
	return out
}

// addOthers asks the other shards, all at once.
func (s *search) addOthers(ctx context.Context, query url.Values, out *status.Workspaces) {
	names := s.others()
	found, faults := make([]status.Workspaces, len(names)), make([]error, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() {
			body, err := s.ask(ctx, name, status.WorkspacesPath+"?"+query.Encode(), searchPatience, searchLimit)
			if err == nil {
				err = json.Unmarshal(body, &found[i])
			}
			faults[i] = err
		})
	}
	asking.Wait()
	for i, name := range names {
		if faults[i] != nil {
			if out.Faults == nil {
				out.Faults = map[string]string{}
			}
			out.Faults[name], out.More = clip(faults[i]), true
			continue
		}
		for _, ws := range found[i].Items {
			ws.Shard = name
			out.Items = append(out.Items, ws)
		}
		out.More = out.More || found[i].More
	}
}
