package front

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/routing"
)

// shardPrefix begins the URL paths with which administrators ask one shard: /shards/<name>/clusters/...
const shardPrefix = "/shards/"

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case "/livez", "/healthz":
		_, _ = w.Write([]byte("ok"))
		return
	case "/readyz":
		f.serveReady(w)
		return
	}
	who, err := f.authenticate(req)
	if err != nil {
		refuse(w, apierrors.NewUnauthorized(err.Error()))
		return
	}
	if who == nil && req.Header.Get("Authorization") == "" {
		refuse(w, apierrors.NewUnauthorized("give a client certificate or a token")) // strangers do not learn which clusters exist
		return
	}
	to, path, err := f.target(req, who != nil)
	if err != nil {
		refuse(w, err)
		return
	}
	f.forward(w, req, to, path, who)
}

// serveReady says whether the front knows the clusters of all shards, or which it does not know.
func (f *Front) serveReady(w http.ResponseWriter) {
	f.mu.RLock()
	listed := f.listed
	f.mu.RUnlock()
	if !listed {
		http.Error(w, "the root shard has not said yet which shards there are", http.StatusServiceUnavailable)
		return
	}
	if unheard, all := f.unheard(); len(unheard) == all {
		http.Error(w, fmt.Sprintf("no shard is heard: %q", unheard), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

// target returns the shard to which a request goes, and the path of its URL there. For a user who is not known, nothing is read to find it: the
// shard that has the nearest cluster around it knows the user's token, and answers.
func (f *Front) target(req *http.Request, known bool) (*shard, string, error) {
	if after, ok := strings.CutPrefix(req.URL.Path, shardPrefix); ok {
		name, rest, _ := strings.Cut(after, "/")
		s, ok := f.shard(name)
		if !ok {
			message := fmt.Sprintf("there is no shard %q", name)
			if !f.isListed() {
				return nil, "", routing.NewUnavailable(message + " that this front knows yet")
			}
			return nil, "", routing.NewNotFound(message)
		}
		inner := *req.URL
		if inner.Path = "/" + rest; strings.HasPrefix(inner.Path, "/clusters/") {
			if _, _, err := routing.Split(&inner); err != nil {
				return nil, "", apierrors.NewBadRequest(err.Error())
			}
		}
		if inner.RawPath != "" && inner.RawPath != req.URL.Path {
			return nil, "", apierrors.NewBadRequest("the URL path must not have encoded characters")
		}
		return s, inner.Path, nil
	}
	path, rest, err := routing.Split(req.URL)
	if err != nil {
		return nil, "", apierrors.NewBadRequest(err.Error())
	}
	name := logicalcluster.Name(path.String())
	if name == clusters.Wildcard || clusters.IsSystem(name) {
		return nil, "", apierrors.NewBadRequest(fmt.Sprintf("every shard has clusters %s of its own: ask one shard, as /shards/<name>/clusters/%s", name, name))
	}
	at, err := f.resolve(req.Context(), path, known)
	if at, ok := f.around(path); err != nil && !known && ok {
		if s, ok := f.shard(at.shard); ok {
			return s, "/clusters/" + path.String() + rest, nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	s, ok := f.shard(at.shard)
	if !ok {
		return nil, "", routing.NewUnavailable(fmt.Sprintf("logical cluster %q is on shard %s, which this front does not know", path, at.shard))
	}
	return s, clusters.RequestPath(at.cluster) + rest, nil
}

func (f *Front) isListed() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.listed
}

// liveTimeout is how long a read that finds a cluster may take.
const liveTimeout = 5 * time.Second

// resolve returns where the cluster at a path is. If the index does not have it, the Workspace is read from the shard that has its parent: it may
// have been created just now. So a 404 is never a guess.
func (f *Front) resolve(ctx context.Context, path logicalcluster.Path, mayRead bool) (place, error) {
	if at, ok := f.index.find(path); ok {
		return at, nil
	}
	parent, name := path.Split()
	if parent.Empty() || !mayRead {
		if unheard, _ := f.unheard(); len(unheard) > 0 || !f.isListed() {
			return place{}, routing.NewUnavailable(fmt.Sprintf("logical cluster %q may be on a shard that is not heard: %s", path, strings.Join(unheard, ", ")))
		}
		return place{}, routing.NewNotFound(fmt.Sprintf("logical cluster %q not found", path))
	}
	at, err := f.resolve(ctx, parent, mayRead)
	if err != nil {
		return place{}, err
	}
	s, ok := f.shard(at.shard)
	if !ok {
		return place{}, routing.NewUnavailable(fmt.Sprintf("shard %s, which has logical cluster %q, is not known", at.shard, parent))
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	ws, err := s.clients.Workspaces.Get(clusters.With(ctx, at.cluster), name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && ws.Spec.Cluster == "":
		return place{}, routing.NewNotFound(fmt.Sprintf("logical cluster %q not found", path))
	case err != nil:
		return place{}, routing.NewUnavailable(fmt.Sprintf("shard %s does not answer, which knows where logical cluster %q is: %v", at.shard, path, err))
	}
	return f.confirm(ctx, path, ws, clusters.ShardOf(ws, clusters.ShardLabel, at.shard))
}

// confirm returns where the cluster of a Workspace is, if the cluster itself names the Workspace as its owner. A Workspace alone proves nothing: a shard
// could send users of its workspaces to clusters of others.
func (f *Front) confirm(ctx context.Context, path logicalcluster.Path, ws *tenancyv1alpha1.Workspace, shard string) (place, error) {
	cluster := logicalcluster.Name(ws.Spec.Cluster)
	absent := routing.NewNotFound(fmt.Sprintf("logical cluster %q not found", path))
	if !clusters.IsValidName(cluster) || clusters.IsPermanent(cluster) {
		return place{}, absent
	}
	s, ok := f.shard(shard)
	if !ok {
		return place{}, routing.NewUnavailable(fmt.Sprintf("logical cluster %q is on shard %s, which this front does not know", path, shard))
	}
	lc, err := s.clients.LogicalClusters.Get(clusters.With(ctx, cluster), corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && !controllers.Owns(ws, lc):
		return place{}, absent
	case err != nil:
		return place{}, routing.NewUnavailable(fmt.Sprintf("shard %s does not answer, which has logical cluster %q: %v", shard, path, err))
	}
	return place{shard, cluster}, nil
}

// around returns where the nearest cluster is in which a path goes on.
func (f *Front) around(path logicalcluster.Path) (place, bool) {
	for parent, more := path.Parent(); more && !parent.Empty(); parent, more = parent.Parent() {
		if at, ok := f.index.find(parent); ok {
			return at, true
		}
	}
	return place{}, false
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, err error) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	out := status.Status()
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(out.Code))
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(out)
}

// authenticate returns the user whom a client certificate names, and nil if there is none.
func (f *Front) authenticate(req *http.Request) (user.Info, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	between := x509.NewCertPool()
	for _, c := range req.TLS.PeerCertificates[1:] {
		between.AddCert(c)
	}
	leaf := req.TLS.PeerCertificates[0]
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: f.trust, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil && req.Header.Get("Authorization") != "" {
		return nil, nil // the token counts
	}
	if err != nil {
		return nil, fmt.Errorf("the client certificate is not of this installation: %w", err)
	}
	for _, chain := range chains {
		if _, _, err := pki.MemberOf(chain); !errors.Is(err, pki.ErrNoMember) {
			return nil, errors.New("a shard or front has signed this certificate: members ask each other directly, and not through a front")
		}
	}
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("the client certificate names nobody: its common name is empty")
	}
	return &user.DefaultInfo{Name: leaf.Subject.CommonName, Groups: append(leaf.Subject.Organization, user.AllAuthenticated)}, nil
}

// forward sends a request to a shard.
func (f *Front) forward(w http.ResponseWriter, req *http.Request, to *shard, path string, who user.Info) {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path, r.Out.URL.RawPath = "https", host, path, ""
			r.Out.Host = ""
			r.SetXForwarded()
			identify(r.Out.Header, who)
		},
		Transport:     to.again(),
		FlushInterval: -1, // watches
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if req.Context().Err() != nil {
				return
			}
			message := fmt.Sprintf("shard %s does not answer: %v", to.name, err)
			if open := (*net.OpError)(nil); errors.As(err, &open) && open.Op == "dial" || readOnly(req.Method) {
				refuse(w, routing.NewUnavailable(message))
				return
			}
			refuse(w, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: message + "; the request may have been carried out",
			}})
		},
	}
	proxy.ServeHTTP(w, req)
}

// identify replaces what a client says of itself by what the front knows. Tokens pass as they are: the shard knows whose they are.
func identify(header http.Header, who user.Info) {
	for key := range header {
		if strings.HasPrefix(http.CanonicalHeaderKey(key), "X-Remote-") {
			delete(header, key)
		}
	}
	if who == nil && header.Get("Authorization") != "" {
		return
	}
	if who == nil {
		who = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	}
	header.Del("Authorization")
	header.Set(clusters.RemoteUserHeader, who.GetName())
	for _, group := range who.GetGroups() {
		header.Add(clusters.RemoteGroupHeader, group)
	}
}

func readOnly(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// again returns a transport that sends a request that only reads once more if the connection breaks: a replica has died, and another one
// answers.
func (s *shard) again() http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		resp, err := s.transport.RoundTrip(req)
		if err != nil && readOnly(req.Method) && req.Context().Err() == nil {
			return s.transport.RoundTrip(req.Clone(req.Context()))
		}
		return resp, err
	})
}

var (
	_ http.Handler = (*Front)(nil)
)
