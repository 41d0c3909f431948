package detect

import (
	"net/http"
	"testing"

	"github.com/regent-project/regent/pkg/election"
)

// Somebody may write a Lease that names their own key and address, and so learn the credential of a standby that
// connects. It is not valid at any other probe.
func TestACredentialIsWorthNothingToAnotherLeader(t *testing.T) {
	leader := openPlain(t, patient)
	credentials := make(chan string, 1000)
	between := actAs(t, newDetector(t, "between", "127.0.0.1:0"), func(w http.ResponseWriter, req *http.Request) {
		credentials <- req.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
	})
	follow(t, between, unhurried)
	relayed := receive(t, credentials)

	for name, test := range map[string]struct {
		credential string
		want       int
	}{
		"relayed":                     {relayed, http.StatusUnauthorized},
		"of its own":                  {bearer + credential(shardSecret, leader.fingerprint), http.StatusOK},
		"of its own, another secret":  {bearer + credential([]byte("of another shard"), leader.fingerprint), http.StatusUnauthorized},
		"none":                        {"", http.StatusUnauthorized},
		"the secret itself":           {bearer + string(shardSecret), http.StatusUnauthorized},
		"of its own, but as password": {"Basic " + credential(shardSecret, leader.fingerprint), http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ask(t, leader.Contact(), test.credential); got != test.want {
				t.Errorf("the leader answers %d, want %d", got, test.want)
			}
		})
	}
}

// ask sends a request to follow with that credential, and returns the status of the answer.
func ask(t *testing.T, leader election.Contact, credential string) int {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: trusting(leader.Key), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+leader.Address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", credential)
	req.Header.Set(replicaHeader, "between")
	req.Header.Set(intervalHeader, "50ms")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
