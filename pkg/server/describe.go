package server

import (
	"context"
	"crypto/x509"
	"maps"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/util/cert"

	"github.com/regent-project/regent/pkg/server/endpoints"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/survey"
	"github.com/regent-project/regent/pkg/server/terms"
)

// newSurvey returns what asks this replica and others how they are doing.
func (r *run) newSurvey(store *store, caches *caches, elections *elections, terms *terms.Runner) *survey.Survey {
	s := r.server
	d := s.newDescriber(store, caches, elections, terms)
	d.Checks = append(d.Checks, healthz.NamedCheck("shutdown", func(*http.Request) error { return context.Cause(r.ctx) }))
	cfg := survey.Config{
		Name: s.cfg.Shard, Root: s.cfg.rootShard(), Replica: d.Describe, Outline: d.Outline, Shard: d.DescribeShard, Terms: d.TermsSoFar,
		Keys: s.keys.ForMembers, Authority: d.Authority, Others: func() []string { return nil }, Diagnose: status.Diagnose,
		Changes: r.known, Leaves: func() bool { return r.fault() == nil }, Farewell: s.cfg.farewell,
	}
	if caches.others != nil {
		cfg.Others = func() []string { return slices.Collect(maps.Keys(caches.others.Peers())) }
		cfg.Ask = caches.others.Ask
	}
	return survey.New(cfg)
}

// newDescriber returns what says how this replica is doing.
func (s *Server) newDescriber(store *store, caches *caches, elections *elections, terms *terms.Runner) *endpoints.Describer {
	namespace := s.cfg.Election.Namespace
	d := &endpoints.Describer{
		Shard: s.cfg.Shard, Replica: s.name, Instance: s.instance, URL: s.replicaURL(), BaseURL: s.cfg.BaseURL, Capacity: s.cfg.Capacity, Started: time.Now(),
		Leader: elections.leadership(), Lease: namespace + "/" + s.cfg.Election.Name,
		Terms: terms, Book: s.book(), Kube: caches.clients.Kube, Informers: caches.informers, Others: caches.others,
		Formats: store.shard.Formats, Etcd: store.describe, Aside: store.aside, Fronts: s.identity.Fronts, Certificates: s.certificates,
		Checks: []healthz.HealthChecker{
			// as the process has last seen it
			healthz.NamedCheck("etcd", func(*http.Request) error { return store.etcd.Latest() }),
			store.space, store.shard, informersCheck(caches.informers), historyCheck(store.Client),
			healthz.NamedCheck("supervisor", func(req *http.Request) error { return terms.Ping(req.Context()) }),
		},
	}
	if elections.electing != nil {
		d.Electing, d.ElectingLease = elections.electing, namespace+"/"+ElectionsLease
	}
	if store.keys != nil {
		d.Checks = append(d.Checks, store.keys.Plugins())
	}
	return d
}

// certificates returns when those expire that this replica shows or trusts.
func (s *Server) certificates() []status.Certificate {
	bundle := s.keys.Bundle()
	out := []status.Certificate{{Name: "authority", Expires: bundle.CA().NotAfter}}
	add := func(name string, certPEM []byte) {
		if certs, err := cert.ParseCertsPEM(certPEM); err == nil { // the admin's is not on all shards
			out = append(out, status.Certificate{Name: name, Expires: earliest(certs)})
		}
	}
	add("admin", bundle.AdminCertPEM)
	if serving := s.generic.SecureServing.Cert; serving != nil {
		certPEM, _ := serving.CurrentCertKeyContent()
		add("serving", certPEM)
	}
	if _, authority := s.keys.ForMembers(); authority != nil && s.cfg.Membership != nil {
		out = append(out, status.Certificate{Name: "membership", Expires: authority.Expires()})
	}
	if s.furtherCA != nil {
		add("client-ca-file", s.furtherCA.CurrentCABundleContent())
	}
	return out
}

// earliest returns when the first of some certificates expires.
func earliest(certs []*x509.Certificate) time.Time {
	return slices.MinFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}
