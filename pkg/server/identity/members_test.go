package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/regent-project/regent/pkg/server/pki"
)

// A replica that stops waits for the handlers of its requests, and not for those whose clients have gone.
func TestAMemberThatIsNotKnownYetIsWaitedForNoLongerThanItsClientWaits(t *testing.T) {
	for name, c := range map[string]struct {
		gone time.Duration // when the client goes; 0: it stays
		took time.Duration
		says error
	}{
		"it stays":     {0, newsPatience, errUnknown},
		"it goes":      {time.Second, time.Second, nil},
		"it goes late": {newsPatience + time.Second, newsPatience, errUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.gone > 0 {
					defer time.AfterFunc(c.gone, cancel).Stop()
				}
				m := &memberRequests{members: &members{late: &late{}}, certificates: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
					return &authenticator.Response{User: &MemberUser{Member: pki.Member{Kind: pki.KindShard, Name: "eu1"}}}, true, nil
				})}
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.TLS = &tls.ConnectionState{PeerCertificates: make([]*x509.Certificate, 2)}
				began := time.Now()
				resp, ok, err := m.AuthenticateRequest(req)
				if took := time.Since(began); ok || resp != nil || !errors.Is(err, c.says) || took.Round(newsPeriod) != c.took {
					t.Errorf("after %v: %+v, %t, %v; want %v after %v", took, resp, ok, err, c.says, c.took)
				}
			})
		})
	}
}
