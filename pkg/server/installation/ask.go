package installation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
)

// Question is what all processes of an installation are asked before a step of a roll: is one trusted who comes with
// this?
type Question struct {
	// CA has the authorities, in PEM, that are trusted. Signs is the one that must have signed what a process
	// shows. Nil: any of them.
	CA    []byte
	Signs *x509.Certificate
	// Cert and Key are those of an administrator, in PEM, which a process must accept.
	Cert, Key []byte
	// Lacks says in a few words what a process lacks that shows or accepts something else.
	Lacks string
}

// Ask asks each replica of each shard, where its Shard object says that it is, and each front. fronts are the URLs of
// all processes of fronts. The error names all that do not answer as they should, and fronts that were not asked.
func (a *Admin) Ask(ctx context.Context, q Question, fronts []string) error {
	root, err := a.root(ctx)
	if err != nil {
		return err
	}
	all, err := a.members(ctx)
	if err != nil {
		return err
	}
	processes := processesOf(root, all, fronts)
	faults := make([]error, len(processes))
	var asking sync.WaitGroup
	for n, p := range processes {
		asking.Go(func() { faults[n] = p.ask(ctx, a.config, q) })
	}
	asking.Wait()
	isAsked := map[string]bool{}
	for _, p := range processes {
		isAsked[p.who.String()] = true
	}
	var missing []error
	for _, name := range slices.Sorted(maps.Keys(frontsOf(root))) {
		if front := (pki.Member{Kind: pki.KindFront, Name: name}); !isAsked[front.String()] {
			missing = append(missing, fmt.Errorf("%s was not asked: give --front=https://<host>:<port>, once for each of its processes, or remove it: regent front remove %s", front, name))
		}
	}
	return errors.Join(slices.Concat(faults, missing)...)
}

// frontsOf returns the fronts that the root shard's Shard object lists, each with the fingerprint of its authority.
func frontsOf(root *corev1alpha1.Shard) map[string]string {
	out := map[string]string{}
	for key, fingerprint := range root.Annotations {
		if name, ok := strings.CutPrefix(key, clusters.FrontAnnotationPrefix); ok {
			out[name] = fingerprint
		}
	}
	return out
}

// errOtherSigns says that a process shows a certificate of another authority than the wanted one.
var errOtherSigns = errors.New("another authority has signed its certificate")

// process is a replica of a shard, or a front.
type process struct {
	url string
	who pki.Member // of a front: empty until it has shown who it is
	// fingerprint returns that of the member's authority, as the root shard has it. ok is false if it is no member.
	fingerprint func(pki.Member) (fingerprint string, ok bool)
	path        string // what only administrators may ask for, without anybody else's help
	advice      string
}

func processesOf(root *corev1alpha1.Shard, all []*corev1alpha1.Shard, fronts []string) []*process {
	const byMembership = "give it its membership as regent pki certify writes it, and wait some seconds"
	var out []*process
	for _, shard := range all {
		for _, url := range clusters.ReplicasOf(shard) {
			p := &process{
				url: url, who: pki.Member{Kind: pki.KindShard, Name: shard.Name}, path: clusters.RequestPath(clusters.SystemAdmin) + "/api", advice: byMembership,
				fingerprint: func(pki.Member) (string, bool) { return shard.Annotations[clusters.AuthorityAnnotation], true },
			}
			if shard.Name == root.Name {
				p.advice = "copy pki/ to that replica, and wait some seconds"
			}
			out = append(out, p)
		}
	}
	members := frontsOf(root)
	for _, url := range fronts {
		out = append(out, &process{url: strings.TrimSuffix(url, "/"), path: "/metrics", advice: byMembership, fingerprint: func(m pki.Member) (string, bool) {
			fingerprint, ok := members[m.Name]
			return fingerprint, ok && m.Kind == pki.KindFront
		}})
	}
	return out
}

// String returns the process in words.
func (p *process) String() string {
	if p.who == (pki.Member{}) {
		return "the front at " + p.url
	}
	return p.who.String() + " at " + p.url
}

// ask returns an error unless the process answers as it should.
func (p *process) ask(ctx context.Context, as *rest.Config, q Question) error {
	config := rest.CopyConfig(as)
	config.CAFile, config.CertFile, config.KeyFile, config.Insecure = "", "", "", false
	config.CAData, config.CertData, config.KeyData, config.ServerName = q.CA, q.Cert, q.Key, pki.ServerName
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", p, err)
	}
	tlsConfig.VerifyConnection = func(state tls.ConnectionState) error { return p.verify(state, q.Signs) }
	transport := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true, TLSHandshakeTimeout: acceptsTimeout}
	err = accepts(ctx, &http.Client{Transport: transport}, p.url+p.path)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrRefused), errors.Is(err, errOtherSigns):
		return fmt.Errorf("%s %s: %s (%w)", p, q.Lacks, p.advice, err)
	}
	return fmt.Errorf("%s cannot be asked: %w", p, err)
}

// verify returns an error unless it is the wanted member that answers, or for a front any that is listed, and the
// wanted authority has signed for it.
func (p *process) verify(state tls.ConnectionState, signs *x509.Certificate) error {
	if len(state.VerifiedChains) == 0 {
		return errors.New("the connection is not verified")
	}
	chain := state.VerifiedChains[0]
	who, authority, err := pki.MemberOf(chain)
	if err != nil {
		return err
	}
	fingerprint, ok := p.fingerprint(who)
	switch {
	case p.who != pki.Member{} && p.who != who:
		return fmt.Errorf("%s answers: correct it with regent shard set %s --replica=...", who, p.who.Name)
	case !ok:
		return fmt.Errorf("%s answers, which is no front of this installation", who)
	}
	switch p.who = who; {
	case signs != nil && !chain[len(chain)-1].Equal(signs):
		return errOtherSigns
	case fingerprint == "" && who.Kind == pki.KindShard: // the root shard
		return nil
	case !pki.IsAuthority(fingerprint, authority):
		return errors.New("it has a membership that was replaced: give it the latest one")
	case fingerprint == pki.Fingerprint(authority): // it would be another one when the new authority has signed it
		return errors.New("its membership is registered by an earlier version: have a new one made first, regent shard add --renew or regent front add")
	}
	return nil
}
