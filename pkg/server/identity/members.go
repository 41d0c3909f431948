package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/routing"
)

// members says who the other members of the installation are, and what they may do here. Shards may read what they need
// to find their part of the work, and write nothing (I9). Fronts may read what they need to find clusters, and tell for
// whom they ask.
type members struct {
	authorities dynamiccertificates.CAContentProvider // the installation's
	own         string                                // the name of this shard
	root        string                                // the name of the root shard
	fronts      heardFronts
	late        *late // has the Shard objects
}

// MemberUser is a member that has shown a certificate of its authority. Its type tells it from a user of the same name
// that somebody impersonates.
type MemberUser struct {
	user.DefaultInfo
	pki.Member
	authority *x509.Certificate // which its membership has
}

// IsMember reports whether a user is another member of the installation, by its certificate.
func IsMember(who user.Info) bool {
	_, ok := who.(*MemberUser)
	return ok
}

// authenticator accepts the certificates of members, and of nobody else. A request that a front forwards is its user's.
func (g *members) authenticator() (authenticator.Request, error) {
	told, err := headerrequest.New([]string{clusters.RemoteUserHeader}, []string{clusters.RemoteUIDHeader}, []string{clusters.RemoteGroupHeader}, []string{clusters.RemoteExtraPrefix})
	if err != nil {
		return nil, fmt.Errorf("cannot read the headers of fronts: %w", err)
	}
	return &memberRequests{members: g, told: told, certificates: newCertificates(g.authorities, memberOf)}, nil
}

// memberOf returns the member that a certificate is of. Whether it still is one is for members.check.
func memberOf(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	member, authority, err := pki.MemberOf(chain)
	if errors.Is(err, pki.ErrNoMember) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	info := user.DefaultInfo{Name: member.User(), UID: member.User(), Groups: []string{member.Group(), user.AllAuthenticated}}
	return &authenticator.Response{User: &MemberUser{info, member, authority}}, true, nil
}

// memberRequests are requests of members. Certificates that the installation's authority has not signed are others'
// business.
type memberRequests struct {
	*members
	certificates, told authenticator.Request
}

// A replica that has just been started hears of other members after it has heard the root shard, and they may ask it
// before: while it is new, it waits until it knows them, but no request waits for longer than newsPatience, or than its
// client.
const (
	whileNew     = 20 * time.Second
	newsPatience = 5 * time.Second
	newsPeriod   = 20 * time.Millisecond
)

// errUnknown is wrapped by errors about members of which this replica may not have heard yet.
var errUnknown = errors.New("this shard does not know the member")

// AuthenticateRequest implements authenticator.Request.
func (m *memberRequests) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	resp, ok, err := m.certificate(req)
	if err != nil || !ok {
		return resp, ok, err
	}
	switch by := resp.User.(*MemberUser); {
	case by.Kind == pki.KindFront:
		m.fronts.hear(by.Member.Name)
		return m.ofFront(req, resp, by.Member.Name)
	case by.Kind == pki.KindShard && by.Member.Name == m.own && req.URL.Path == routing.StepDownPath:
		return m.ofReplica(req, resp)
	}
	return resp, true, nil
}

// ofReplica returns the user for whom another replica of this shard asks its leader to step down. That replica has no
// right of its own to ask, so it cannot be made to do what the user may not: this replica checks the user's rights, as
// that one has. It has authenticated the user by what all replicas of the shard know, service accounts too.
func (m *memberRequests) ofReplica(req *http.Request, resp *authenticator.Response) (*authenticator.Response, bool, error) {
	switch told, ok, err := m.told.AuthenticateRequest(req); {
	case err != nil:
		return nil, false, err
	case ok && isReserved(told.User):
		return nil, false, reservedFault(resp.User, told.User)
	case ok:
		return told, true, nil
	}
	return resp, true, nil
}

// ofFront returns the user for whom a front asks. The front says who that is, or sends the user's token along. It does
// neither when it asks for itself, and says so of users who are anonymous.
func (m *memberRequests) ofFront(req *http.Request, resp *authenticator.Response, front string) (*authenticator.Response, bool, error) {
	switch told, ok, err := m.told.AuthenticateRequest(req); {
	case err != nil:
		return nil, false, err
	case ok && isReserved(told.User):
		return nil, false, reservedFault(resp.User, told.User)
	case ok && isServiceAccount(told.User):
		return nil, false, fmt.Errorf("%s says that it asks for a service account: %w", resp.User.GetName(), serviceAccountFault(told.User))
	case ok:
		return told, true, nil
	case len(req.Header.Values(clusters.RemoteUserHeader)) > 0:
		return nil, false, fmt.Errorf("%s does not say for whom it asks", resp.User.GetName())
	case req.Header.Get("Authorization") != "":
		return nil, false, nil // whoever knows the token says whose it is
	}
	m.fronts.hearVersion(front, req.UserAgent()) // what users send along is not what it says
	return resp, true, nil
}

func reservedFault(by, told user.Info) error {
	return fmt.Errorf("%s says that it asks for user %q of %q: names that begin with %s are the servers' own", by.GetName(), told.GetName(), told.GetGroups(), ReservedPrefix)
}

// certificate returns the member that shows its certificate, if one does, and that of its own authority with it.
func (m *memberRequests) certificate(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) < 2 {
		return nil, false, nil
	}
	resp, ok, err := m.certificates.AuthenticateRequest(req)
	if unknown := new(x509.UnknownAuthorityError); errors.As(err, unknown) {
		return nil, false, nil
	}
	if err != nil || !ok {
		return nil, false, err
	}
	by := resp.User.(*MemberUser)
	patient, cancel := context.WithTimeout(req.Context(), newsPatience)
	defer cancel()
	for err = m.check(by.Member, by.authority); errors.Is(err, errUnknown) && m.late.isNew(); err = m.check(by.Member, by.authority) {
		select {
		case <-time.After(newsPeriod):
			continue
		case <-patient.Done():
		}
		if req.Context().Err() != nil {
			return nil, false, nil // the client has gone: a refusal would be logged, and nobody hears it
		}
		return nil, false, err
	}
	if err != nil {
		return nil, false, err
	}
	return resp, true, nil
}

// check refuses members that were removed, or have a newer membership.
func (g *members) check(member pki.Member, authority *x509.Certificate) error {
	shards := g.late.shards()
	if shards == nil {
		return fmt.Errorf("%w, because this replica does not read its store yet", errUnknown)
	}
	if member.Kind == pki.KindFront {
		return g.checkFront(shards, member, authority)
	}
	// The root shard's own list is never behind. All other shards have copies of it.
	shard, ok := shards.Get(clusters.Key{Cluster: clusters.Root, Name: member.Name})
	if !ok {
		shard, ok = shards.Get(clusters.Key{Cluster: clusters.SystemShards, Name: member.Name})
	}
	switch {
	case !ok && member.Name == g.root: // it is the first that a new shard hears of
		return nil
	case !ok:
		return fmt.Errorf("%w: %s is no member of the installation, as far as this shard knows: see regent shard list", errUnknown, member)
	case clusters.IsRemoved(shard):
		return fmt.Errorf("%s was removed from the installation", member)
	case shard.Annotations[clusters.AuthorityAnnotation] != "" && !pki.IsAuthority(shard.Annotations[clusters.AuthorityAnnotation], authority):
		return fmt.Errorf("%s shows a membership that was replaced: give its replicas the latest one", member)
	}
	return nil
}

// checkFront refuses fronts that the root shard's Shard object does not list.
func (g *members) checkFront(shards *clusters.Informer[*corev1alpha1.Shard], member pki.Member, authority *x509.Certificate) error {
	for _, cluster := range []logicalcluster.Name{clusters.Root, clusters.SystemShards} {
		if root, ok := shards.Get(clusters.Key{Cluster: cluster, Name: g.root}); ok {
			switch fingerprint := root.Annotations[clusters.FrontAnnotationPrefix+member.Name]; {
			case pki.IsAuthority(fingerprint, authority):
				return nil
			case fingerprint == "":
				return fmt.Errorf("%w: %s is no member of the installation, as far as this shard knows", errUnknown, member)
			default:
				return fmt.Errorf("%s shows a membership that was replaced: give it the latest one", member)
			}
		}
	}
	return fmt.Errorf("%w, nor any other of its installation yet", errUnknown)
}

// noMembers converts certificates of users. It refuses those that a member has signed: a member must not name anybody
// else.
func (g *members) noMembers(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	if _, _, err := pki.MemberOf(chain); !errors.Is(err, pki.ErrNoMember) {
		return nil, false, errors.Join(errors.New("a member of the installation has signed this certificate: it is for nobody else"), err)
	}
	return x509request.CommonNameUserConversion.User(chain)
}

// Readable are the resources that members read.
var Readable = map[string]string{"workspaces": "tenancy.kcp.io", "logicalclusters": "core.kcp.io", "shards": "core.kcp.io"}

// rights lets members read what they need, and replicas of this shard tell that they leave.
func (g *members) rights(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	member, ok := a.GetUser().(*MemberUser)
	if !ok {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if !a.IsResourceRequest() && a.GetVerb() == "get" && g.mayAsk(member.Member, a.GetPath()) {
		return authorizer.DecisionAllow, "", nil
	}
	if !a.IsResourceRequest() && a.GetVerb() == "post" && g.mayTell(member.Member, a.GetPath()) {
		return authorizer.DecisionAllow, "", nil
	}
	group, ok := Readable[a.GetResource()]
	if ok && a.IsResourceRequest() && a.GetAPIGroup() == group && a.GetSubresource() == "" && slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "shards and fronts read workspaces, logicalclusters and shards, and nothing else", nil
}
