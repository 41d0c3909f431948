package keys

import (
	"crypto/x509"
	"sync"

	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/regent-project/regent/pkg/server/pki"
)

var (
	authorities = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_certificate_authority", StabilityLevel: metrics.ALPHA,
		Help: "1 for each certificate authority that this process trusts, by the SHA-256 of its certificate. use is signs for the one that signs the process's own certificates, else trusts.",
	}, []string{"fingerprint", "use"})
	expiries = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_certificate_expiration_seconds", StabilityLevel: metrics.ALPHA,
		Help: "When a certificate expires, in seconds since 1970: the authority's, the administrator's, and the one that this process serves with.",
	}, []string{"certificate"})
	refusedGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_certificates_refused", StabilityLevel: metrics.ALPHA,
		Help: "1 if what is in pki/ cannot be used and what was read before it stays in use, else 0.",
	})
)

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(authorities, expiries, refusedGauge) })

// tellAuthorities sets the metrics of what is in use.
func tellAuthorities(b *pki.Bundle, serving *pairSource) {
	registerMetrics()
	authorities.Reset()
	for _, ca := range b.Trusted() {
		use := "trusts"
		if ca.Equal(b.CA()) {
			use = "signs"
		}
		authorities.WithLabelValues(pki.Fingerprint(ca), use).Set(1)
	}
	expires("authority", b.CA())
	expiresPEM("admin", b.AdminCertPEM)
	if serving != nil {
		certPEM, _ := serving.CurrentCertKeyContent()
		expiresPEM("serving", certPEM)
	}
}

func expires(name string, c *x509.Certificate) {
	expiries.WithLabelValues(name).Set(float64(c.NotAfter.Unix()))
}

func expiresPEM(name string, certPEM []byte) {
	if certs, err := cert.ParseCertsPEM(certPEM); err == nil {
		expires(name, certs[0])
	}
}

// accept says that what is in the files is what is used, reject why it is not.
func (c *Keys) accept() {
	c.fault.Store(nil)
	refusedGauge.Set(0)
}

func (c *Keys) reject(err error) {
	c.fault.Store(&err)
	refusedGauge.Set(1)
}
