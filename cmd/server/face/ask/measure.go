package ask

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// Measurement is what a client sees of a replica.
type Measurement struct {
	// Latencies are how long requests took on one connection, the shortest first.
	Latencies []time.Duration
	// Ahead is by how much the replica's clock is ahead of this machine's, as far as the fastest answer can tell:
	// Within either way.
	Ahead, Within time.Duration
	// Expires is when the certificate expires that the replica shows.
	Expires time.Time
}

// measurements is how often a replica is asked.
const measurements = 5

// Measure asks a replica itself some times.
func (c *Client) Measure(ctx context.Context, of status.Installation, r status.Replica) (Measurement, error) {
	var m Measurement
	places := c.replica(of, r)
	if len(places) == 0 {
		return m, fmt.Errorf("replica %s has not told its URL", r.Name)
	}
	client, err := places[0].Client()
	if err != nil {
		return m, err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m.Within = patience
	for i := range measurements + 1 {
		var itself status.Replica
		began := time.Now()
		if err := places[0].send(ctx, client, http.MethodGet, status.ReplicaPath, nil, &itself); err != nil {
			return m, err
		}
		took := time.Since(began)
		if i == 0 {
			continue // it has opened the connection
		}
		m.Latencies = append(m.Latencies, took)
		if took/2 < m.Within && !itself.Observed.IsZero() {
			m.Ahead, m.Within = itself.Observed.Sub(began.Add(took/2)), took/2
		}
	}
	slices.Sort(m.Latencies)
	m.Expires = places[0].expires(ctx)
	return m, nil
}

// expires returns when the certificate expires that a server shows, or zero if that cannot be found out.
func (p Place) expires(ctx context.Context) time.Time {
	config, err := p.tls()
	if err != nil || config == nil {
		return time.Time{}
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", p.address())
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = conn.Close() }()
	certificates := conn.(*tls.Conn).ConnectionState().PeerCertificates
	if len(certificates) == 0 {
		return time.Time{}
	}
	return certificates[0].NotAfter
}
