package detect

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
)

// Whatever a leader sends, a standby accepts as beats only lines of JSON that are not too long, and keeps no more than
// one line.
func FuzzWhatALeaderSends(f *testing.F) {
	f.Add([]byte(`{"holder":"h","condition":"well"}` + "\n"))
	f.Add([]byte(`{"holder":"h","condition":"troubled"}` + "\n" + `{"holder":"h","condition":"over"}`))
	f.Add([]byte("null\n[]\n"))
	f.Add([]byte(strings.Repeat("x", longestLine+1)))
	f.Add([]byte("\n\r\n\x00\xff"))
	f.Add([]byte(`{"holder":"` + strings.Repeat("h", longestLine) + `"}`))
	klog.LogToStderr(false)
	f.Fuzz(func(t *testing.T, sent []byte) {
		following := &following{
			d: &Detector{cfg: Config{Name: "fuzz"}}, asked: make(chan string, 1),
			follower: election.Follower{Report: func(n election.News) {
				if n.Sign != election.Alive {
					t.Errorf("news: %+v", n)
				}
				if !occurs(sent, n.Said) {
					t.Errorf("it never said %+v", n.Said)
				}
			}},
		}
		if err := lines(bytes.NewReader(sent), following.becomeAlive); err == nil {
			t.Error("the stream goes on after its end")
		}
	})
}

// occurs reports whether some line has that Statement.
func occurs[T comparable](sent []byte, said T) bool {
	for line := range bytes.Lines(sent) {
		var message T
		if len(line) <= longestLine && json.Unmarshal(line, &message) == nil && message == said {
			return true
		}
	}
	return false
}

// Whatever a peer sends, it counts only with the credential, under the name that it gave, and until its stream ends.
func FuzzWhatAStandbySends(f *testing.F) {
	f.Add(true, "standby", "200ms", "lease", "7", "h", []byte(`{"reads":"h"}`+"\n"))
	// the second is not heard
	f.Add(true, "standby", "200ms", "lease", "7", "h", []byte(`{"reads":"h`+"\xff\x80\n"+`{"writes":"h"}`+"\n"))
	f.Add(true, "standby", "10ms", "for-life", "-1", "", []byte(`{"wants":"h"}`+"\n"+`{"reads":"a","wants":"b"}`))
	f.Add(true, "", "1h", "", "99999999999", strings.Repeat("h", longestHolder+1), []byte("x\n"))
	f.Add(true, strings.Repeat("r", longestReplica+1), "-1s", "", "", "", []byte(nil))
	f.Add(false, "standby", "200ms", "lease", "7", "h", []byte(`{"wants":"h"}`+"\n"))
	d, err := New(Config{Name: "fuzz", Replica: "leader", Advertise: "127.0.0.1"})
	if err != nil {
		f.Fatal(err)
	}
	d.secret = shardSecret
	listener := newLimitedListener(nil, "fuzz", time.Hour, klog.Background())
	f.Fuzz(func(t *testing.T, knows bool, replica, interval, mode, priority, led string, sent []byte) {
		conn := listener.enter(&addressed{from: "127.0.0.1:7"})
		defer func() { _ = conn.Close() }()
		req := httptest.NewRequestWithContext(withConn(t.Context(), conn), http.MethodPost, path, bytes.NewReader(sent))
		req.Header = http.Header{replicaHeader: {replica}, intervalHeader: {interval}, modeHeader: {mode}, priorityHeader: {priority}, ledHeader: {led}}
		if knows {
			req.Header.Set("Authorization", bearer+credential(shardSecret, d.fingerprint))
		} else {
			req.Header.Set("Authorization", led)
		}
		answer := httptest.NewRecorder()
		d.serve(&recorder{answer}, req)

		if !knows && answer.Code != http.StatusUnauthorized {
			t.Errorf("a stranger is answered with %d", answer.Code)
		}
		select {
		case said := <-d.confirmations:
			if answer.Code != http.StatusOK || said.Replica != replica || len(replica) > longestReplica || len(said.Led) > longestHolder {
				t.Errorf("after %d it counts what %+v says", answer.Code, said)
			}
			if !occurs(sent, confirmation{Writes: said.Holder}) {
				t.Errorf("it never said %+v", said)
			}
		default:
		}
		if left := d.Followers(); len(left) > 0 {
			t.Errorf("it is followed by %+v", left)
		}
	})
}

// recorder is a ResponseRecorder with deadlines, like a real stream.
type recorder struct{ *httptest.ResponseRecorder }

func (*recorder) SetReadDeadline(time.Time) error  { return nil }
func (*recorder) SetWriteDeadline(time.Time) error { return nil }
