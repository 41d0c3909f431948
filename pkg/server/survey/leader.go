package survey

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/regent-project/regent/pkg/server/fetch"
)

// maxReply is how long the answer to a request that was passed on may be, in bytes.
const maxReply = 64 << 10

// ErrUnanswered is wrapped by the error of a request that was sent, perhaps, and that may have been carried out.
var ErrUnanswered = errors.New("it was asked, perhaps")

// Leader returns the name of the replica that leads this shard, where others reach it, and whether it is this process,
// as this replica sees it on the Lease now. Each name is empty if it is not known.
func (s *Survey) Leader() (name, url string, here bool) {
	self := s.cfg.Outline()
	e := self.Election
	return e.Leader, e.LeaderURL, leaderOf(e, time.Time{}).is(self)
}

// Send passes a request on to another replica of this shard, over the connections by which replicas ask each other, and
// returns the HTTP status and the body of the answer. to is where the replica is reached, and the request's URL is
// below it. The request shows that a replica of this shard sends it, so its headers must say for whom. It is sent once
// at most, and takes two seconds at most. The error wraps ErrUnanswered unless nothing was sent.
func (s *Survey) Send(req *http.Request, to string) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(req.Context(), s.patience.whole)
	defer cancel()
	transport, err := s.lines.to(to)
	if err != nil {
		return 0, nil, err
	}
	answer, err := fetch.Do(transport.RoundTrip, req.WithContext(ctx), maxReply)
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return 0, nil, err
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	return answer.Code, answer.Body, nil
}
