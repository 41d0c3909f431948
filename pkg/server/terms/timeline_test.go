package terms

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/transport"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
)

// answers is a transport that answers with a status; 0 is an error.
type answers int

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a == 0 {
		return nil, errors.New("no answer")
	}
	return &http.Response{StatusCode: int(a), Body: http.NoBody}, nil
}

// send sends a request of a term's client.
func send(t *testing.T, w transport.WrapperFunc, method string, status answers) {
	t.Helper()
	resp, err := w(status).RoundTrip(httptest.NewRequestWithContext(t.Context(), method, "/", nil))
	if err == nil {
		_ = resp.Body.Close()
	}
}

func TestATakeoverIsToldOnceWithItsPhases(t *testing.T) {
	if err := registerTimeline(); err != nil {
		t.Fatal(err)
	}
	symptom := time.Now().Add(-10 * time.Millisecond)
	takeover := election.Takeover{
		Trigger: election.TriggerDeath, Symptom: symptom,
		Decided: symptom.Add(2 * time.Millisecond), Sent: symptom.Add(3 * time.Millisecond), Acquired: symptom.Add(8 * time.Millisecond),
	}
	for name, test := range map[string]struct {
		takeover election.Takeover
		work     func(ctx context.Context, t *testing.T, w transport.WrapperFunc)
		early    bool // told before the term ends
		want     []string
		not      []string
	}{
		"works at once": {
			takeover: takeover, early: true,
			work: func(ctx context.Context, t *testing.T, w transport.WrapperFunc) {
				for range 3 {
					control.Reached(ctx, control.Working)
					send(t, w, http.MethodPut, http.StatusOK)
					control.Reached(ctx, control.Reconciled)
				}
			},
			want: []string{`trigger="death"`, `detect="2ms"`, `break="1ms"`, `acquire="5ms"`, "caches=", "first_reconcile=", "first_write="},
		},
		"has nothing to write": {
			takeover: takeover,
			work: func(ctx context.Context, t *testing.T, w transport.WrapperFunc) {
				control.Reached(ctx, control.Working)
				control.Reached(ctx, control.Reconciled)
				send(t, w, http.MethodGet, http.StatusOK)
				send(t, w, http.MethodPut, http.StatusConflict)
				send(t, w, http.MethodPut, 0)
			},
			want: []string{"acquire=", "caches=", "first_reconcile="}, not: []string{"first_write="},
		},
		"does nothing": {
			takeover: takeover,
			work:     func(context.Context, *testing.T, transport.WrapperFunc) {},
			want:     []string{"acquire="}, not: []string{"caches=", "first"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
			timeline, work, end := newTimeline(ctx, name, 1, test.takeover)
			test.work(work, t, timeline.writes(ctx))
			if early := log.Len() > 0; early != test.early {
				t.Errorf("told before the term ends: %v", early)
			}
			end()
			if n := strings.Count(log.String(), `"Takeover"`); n != 1 {
				t.Errorf("%d lines: %s", n, &log)
			}
			for _, want := range test.want {
				if !strings.Contains(log.String(), want) {
					t.Errorf("no %s in %s", want, &log)
				}
			}
			for _, not := range test.not {
				if strings.Contains(log.String(), not) {
					t.Errorf("%s in %s", not, &log)
				}
			}
		})
	}
	t.Run("without election", func(t *testing.T) {
		timeline, work, end := newTimeline(t.Context(), "none", 1, election.Takeover{})
		control.Reached(work, control.Reconciled)
		send(t, timeline.writes(t.Context()), http.MethodPut, http.StatusOK)
		end()
	})
	for name, want := range map[string]uint64{"works at once": 6, "has nothing to write": 5, "does nothing": 3, "none": 0} {
		if got := phasesOf(t, name); got != want {
			t.Errorf("%s: %d phases are measured, want %d", name, got, want)
		}
	}
}

// phasesOf counts what /metrics shows of a lease's takeovers.
func phasesOf(t *testing.T, lease string) (n uint64) {
	t.Helper()
	for _, p := range []phase{detectPhase, breakPhase, acquirePhase, cachesPhase, reconcilePhase, writePhase} {
		count, err := testutil.GetHistogramMetricCount(phaseSeconds.WithLabelValues(lease, string(election.TriggerDeath), string(p)))
		if err != nil {
			t.Fatal(err)
		}
		n += count
	}
	return n
}
