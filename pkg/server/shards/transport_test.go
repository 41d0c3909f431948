package shards

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// reader returns how us1 reads from eu1.
func (i *installation) reader(replicas ...*replica) *failover {
	i.Helper()
	m := Member{Name: "eu1", Authority: i.authority(shardNamed("eu1")).Fingerprint()}
	for _, r := range replicas {
		m.URLs = append(m.URLs, r.url)
	}
	f, err := newFailover(NewCaller(i.keys("us1")), m)
	if err != nil {
		i.Fatal(err)
	}
	i.Cleanup(f.close)
	return f
}

func (i *installation) send(f http.RoundTripper, method, path string) (*http.Response, error) {
	i.Helper()
	req, err := http.NewRequestWithContext(i.Context(), method, "https://anywhere.internal"+path, nil)
	if err != nil {
		i.Fatal(err)
	}
	return f.RoundTrip(req)
}

func TestAReadIsAnsweredByTheFirstReplicaThatCan(t *testing.T) {
	i := newInstallation(t)
	type replicas []func() *replica
	answers := func(status int, body string) func() *replica {
		return func() *replica { return i.serve(i.authority(shardNamed("eu1")), answering(status, body)) }
	}
	stranger := func() *replica { return i.serve(i.authority(shardNamed("eu2")), answering(http.StatusOK, "eu2")) }
	for name, tc := range map[string]struct {
		replicas replicas
		want     string   // the answer, or what the error says
		asked    []int32  // how often each was asked, for two reads
		says     []string // of the last fault
	}{
		"all well":                          {replicas{answers(200, "a"), answers(200, "b")}, "a", []int32{2, 0}, nil},
		"the first is not ready":            {replicas{answers(500, ""), answers(200, "b")}, "b", []int32{1, 2}, nil},
		"the first knows no new member":     {replicas{answers(401, ""), answers(200, "b")}, "b", []int32{1, 2}, nil},
		"the first is down":                 {replicas{i.down, answers(200, "b")}, "b", []int32{0, 2}, nil},
		"the first is paused":               {replicas{i.paused, answers(200, "b")}, "b", []int32{0, 2}, nil},
		"the first is another shard's":      {replicas{stranger, answers(200, "b")}, "b", []int32{0, 2}, nil},
		"what does not exist is an answer":  {replicas{answers(404, "a"), answers(200, "b")}, "a", []int32{2, 0}, nil},
		"what is forbidden is an answer":    {replicas{answers(403, "a"), answers(200, "b")}, "a", []int32{2, 0}, []string{"403 Forbidden to /x"}},
		"none can, and the last one tells":  {replicas{answers(401, "a"), answers(503, "b")}, "b", []int32{2, 2}, []string{"503 Service Unavailable to /x"}},
		"one answers, and the last is down": {replicas{answers(503, "a"), i.down}, "a", []int32{2, 0}, []string{"503 Service Unavailable to /x"}},
		"none is there":                     {replicas{i.down, stranger}, "", []int32{0, 0}, []string{"connection refused", "shard eu2 answers"}},
	} {
		t.Run(name, func(t *testing.T) {
			var there []*replica
			for _, r := range tc.replicas {
				there = append(there, r())
			}
			f := i.reader(there...)
			for range 2 {
				resp, err := i.send(f, http.MethodGet, "/x")
				if resp == nil {
					if tc.want != "" {
						t.Fatal(err)
					}
					continue
				}
				body, err := io.ReadAll(resp.Body)
				if _ = resp.Body.Close(); err != nil || string(body) != tc.want {
					t.Errorf("%q answers, want %q (%v)", body, tc.want, err)
				}
			}
			for n, r := range there {
				if got := r.requests.Load(); got != tc.asked[n] {
					t.Errorf("replica %d was asked %d times, want %d", n, got, tc.asked[n])
				}
			}
			fault := f.lastFault()
			if (fault == nil) != (tc.says == nil) {
				t.Fatalf("last fault %v", fault)
			}
			for _, want := range tc.says {
				if !strings.Contains(fault.Error(), want) {
					t.Errorf("last fault %v, want %q in it", fault, want)
				}
			}
		})
	}
}

// I9, by whom a shard reads with: whatever a controller tries, nothing leaves the process.
func TestNothingIsWrittenToAnotherShardI9(t *testing.T) {
	i := newInstallation(t)
	there := i.serve(i.authority(shardNamed("eu1")), answering(http.StatusOK, ""))
	f := i.reader(there)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodHead, "get", "BREW"} {
		if resp, err := i.send(f, method, "/x"); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s is sent", method)
		}
	}
	if got := there.requests.Load(); got != 0 {
		t.Errorf("%d requests came", got)
	}
}

func hung(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }

// forever writes until nobody reads.
func forever(w http.ResponseWriter, req *http.Request) {
	chunk := make([]byte, 1<<10)
	for req.Context().Err() == nil {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// bomb writes little that becomes much.
func bomb(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = z.Write(make([]byte, 1<<20))
	_ = z.Close()
}

// stall answers with a header, and with nothing more.
func stall(w http.ResponseWriter, req *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-req.Context().Done()
}

const aList, anObject = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces", "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/team"

// What another shard answers costs a bounded time and a bounded memory, whatever it does. The error says which shard.
func TestAnswersEnd(t *testing.T) {
	i := newInstallation(t)
	const silent = "shard eu1 has not answered within"
	for name, tc := range map[string]struct {
		path    string
		handler http.HandlerFunc
		want    string // of the error, or nothing
	}{
		"a list whose header never comes":  {aList, hung, silent},
		"a watch whose header never comes": {"/x?watch=true", hung, silent},
		"a list that stalls":               {aList, stall, silent},
		"a list that never ends":           {aList, forever, "shard eu1 answers with more than 65536 bytes"},
		"a list that is a bomb":            {aList, bomb, "shard eu1 answers with more than 65536 bytes"},
		"a list that just fits":            {aList, answering(http.StatusOK, strings.Repeat("x", 1<<16)), ""},
		"an object that just fits":         {anObject, answering(http.StatusOK, strings.Repeat("x", 1<<10)), ""},
		"an object that is a list's size":  {anObject, answering(http.StatusOK, strings.Repeat("x", 1<<10+1)), "shard eu1 answers with more than 1024 bytes"},
		"a list that just does not":        {aList, answering(http.StatusOK, strings.Repeat("x", 1<<16+1)), "shard eu1 answers with more"},
	} {
		t.Run(name, func(t *testing.T) {
			f := i.reader(i.serve(i.authority(shardNamed("eu1")), tc.handler))
			patience := 30 * time.Second
			if tc.want == silent {
				patience = 500 * time.Millisecond
			}
			f.bounds.header, f.bounds.whole, f.bounds.size, f.bounds.object = patience, patience, 1<<16, 1<<10
			resp, err := i.send(f, http.MethodGet, tc.path)
			if err == nil {
				var n int64
				if n, err = io.Copy(io.Discard, resp.Body); n > 1<<16+1 {
					t.Errorf("%d bytes were read", n)
				}
				_ = resp.Body.Close()
			}
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestAReplicaThatHangsIsPassedOver(t *testing.T) {
	i := newInstallation(t)
	eu1 := i.authority(shardNamed("eu1"))
	f := i.reader(i.serve(eu1, hung), i.serve(eu1, answering(http.StatusOK, "b")))
	f.bounds.header = 2 * time.Second
	resp, err := i.send(f, http.MethodGet, "/x")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

// Whoever reads has less time than a list may take: the next read is not for the replica that has used it up.
func TestAReplicaThatUsesUpAllTimeIsTriedLast(t *testing.T) {
	i := newInstallation(t)
	eu1 := i.authority(shardNamed("eu1"))
	f := i.reader(i.serve(eu1, hung), i.serve(eu1, answering(http.StatusOK, "b")))
	read := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://anywhere.internal/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	if err := read(time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first read ends with %v", err)
	}
	if err := read(time.Minute); err != nil {
		t.Error(err)
	}
}

// A watch may be quiet, and long, for as long as it likes.
func TestAWatchHasNoBoundsOnceItIsOpen(t *testing.T) {
	i := newInstallation(t)
	const long = 1 << 18
	f := i.reader(i.serve(i.authority(shardNamed("eu1")), func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		// a list would be cut off meanwhile; a slower machine makes it no shorter
		time.Sleep(400 * time.Millisecond)
		_, _ = w.Write(make([]byte, long))
	}))
	f.bounds.whole, f.bounds.size = 100*time.Millisecond, 1<<10
	var watches OpenWatches
	resp, err := i.send(watches.Over(f), http.MethodGet, "/x?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	if open, _ := watches.Count(); open != 1 {
		t.Errorf("%d watches are open", open)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != long || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = resp.Body.Close()
	if open, _ := watches.Count(); open != 0 {
		t.Errorf("%d watches are open after its end", open)
	}
}
