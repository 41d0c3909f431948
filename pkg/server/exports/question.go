// Package exports lets an APIBinding name an APIExport of another shard: a shard answers the others about its exports
// (Answers), and asks them about theirs (Others).
//
// The shard that has the export decides who may bind it. It believes the one that asks who the user is, and shows it
// any export: members of an installation trust each other so far. What the other shard shows is no more believed than
// that: it cannot pass for an object of this shard or of a third one (clusters.ForeignUID).
package exports

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
)

// Question asks the shard of an export (status.ExportPath). It asks whether User may bind the export; or what Schema
// is, which the export must name; or, without both, what the export is. With nothing but Changed it asks which exports
// have changed.
type Question struct {
	Changed bool
	Cluster logicalcluster.Name
	Name    string
	User    *authenticationv1.UserInfo
	Schema  string
}

// Answer is the answer to a Question.
type Answer struct {
	// May says whether the user may bind the export, which may not exist.
	May bool `json:"may,omitempty"`
	// Export is what the question is about, and Schemas has the uids of the schemas that it names and that are
	// there, by name. Nil: there is no such export.
	Export  *apisv1alpha2.APIExport `json:"export,omitempty"`
	Schemas map[string]types.UID    `json:"schemas,omitempty"`
	// Schema is the one that was asked for. Nil: the export does not name it, or it is not there.
	Schema *apisv1alpha1.APIResourceSchema `json:"schema,omitempty"`
	// Changes are what has changed in the last minute, as this replica has heard of it. Missed says that there is
	// more.
	Changes []Change `json:"changes,omitempty"`
	Missed  bool     `json:"missed,omitempty"`
	// By names the process that answers about changes: it has heard of none before it began.
	By string `json:"by,omitempty"`
}

// Change is one export that has changed, or of which a schema has. Version is another one with each change.
type Change struct {
	Cluster logicalcluster.Name `json:"cluster"`
	Name    string              `json:"name"`
	Version string              `json:"version"`
}

// Query returns the question for a URL.
func (q Question) Query() (url.Values, error) {
	if q.Changed {
		return url.Values{"changed": {"true"}}, nil
	}
	out := url.Values{"cluster": {q.Cluster.String()}, "name": {q.Name}}
	if q.Schema != "" {
		out.Set("schema", q.Schema)
	}
	if q.User != nil {
		who, err := json.Marshal(q.User)
		if err != nil {
			return nil, fmt.Errorf("encode user %q: %w", q.User.Username, err)
		}
		out.Set("user", string(who))
	}
	return out, nil
}

// ReadQuestion returns the question in a URL.
func ReadQuestion(query url.Values) (Question, error) {
	if query.Get("changed") == "true" {
		return Question{Changed: true}, nil
	}
	q := Question{Cluster: logicalcluster.Name(query.Get("cluster")), Name: query.Get("name"), Schema: query.Get("schema")}
	if !clusters.IsValidName(q.Cluster) || !isName(q.Name) || q.Schema != "" && !isName(q.Schema) {
		return Question{}, errors.New("ask with the cluster and the name of an export, and with schema or user if that is the question; or with changed=true")
	}
	if text := query.Get("user"); text != "" {
		q.User = &authenticationv1.UserInfo{}
		if err := json.Unmarshal([]byte(text), q.User); err != nil {
			return Question{}, fmt.Errorf("user cannot be decoded: %w", err)
		}
		if q.User.Username == "" || q.Schema != "" {
			return Question{}, errors.New("ask either for a schema, or whether a user may bind the export, with the user's name")
		}
	}
	return q, nil
}

// isName reports whether an export or a schema may have a name.
func isName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// userOf returns the user that a question has.
func userOf(who *authenticationv1.UserInfo) user.Info {
	out := &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: map[string][]string{}}
	for key, values := range who.Extra {
		out.Extra[key] = values
	}
	return out
}

// infoOf returns a user for a question.
func infoOf(who user.Info) *authenticationv1.UserInfo {
	out := &authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
	for key, values := range who.GetExtra() {
		out.Extra[key] = values
	}
	return out
}
