package front

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsAWatch(t *testing.T) {
	for target, want := range map[string]bool{
		"/api/v1/pods?watch=true": true, "/api/v1/pods?limit=5&watch=1": true, "/api/v1/pods?watch=false": false, "/api/v1/pods?watch=0&watch=1": false,
		// Kubernetes takes any other value, and none, for true. An object is got, whatever the query says.
		"/api/v1/pods?watch=": true, "/api/v1/pods?watch": true, "/api/v1/pods?watch=yes": true, "/clusters/root:a/api/v1/namespaces/a/pods?watch=1": true,
		"/shards/clusters/clusters/a/api/v1/watch/pods": true, "/clusters/a/apis/apps/v1/watch/namespaces/a/deployments": true,
		"/clusters/a/api/v1/namespaces/a/pods/p?watch=true": false, "/clusters/a/version?watch=true": false, "/clusters/watch/api/v1/pods": false,
		"/api/v1/pods": false, "/api/v1/watch": false, "/api/v1/pods?fieldSelector=metadata.name%3Dwatch": false, "/api/v1/pods?%77atch=1": true,
	} {
		if got := isWatch(httptest.NewRequest(http.MethodGet, target, nil)); got != want {
			t.Errorf("%s: %t", target, got)
		}
	}
	if isWatch(httptest.NewRequest(http.MethodPost, "/api/v1/pods?watch=true", nil)) {
		t.Error("a creation is a watch")
	}
}

var errBroken = errors.New("the connection is broken")

// However a watch breaks, its client sees an end, and not an error.
func TestAWatchEndsCleanlyHoweverItBreaks(t *testing.T) {
	read, write := io.Pipe()
	s := &streams{}
	body := s.add(read)
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		_, _ = write.Write([]byte("event"))
		_ = write.CloseWithError(errBroken)
	})
	if got, err := io.ReadAll(body); string(got) != "event" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := body.Close(); err != nil || len(s.open) != 0 {
		t.Errorf("closed with %v, and %d are open", err, len(s.open))
	}
}

func TestWatchesEndOneByOneAndLaterOnesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watches, within = 5, 10 * time.Second
		s := &streams{}
		ends := make(chan time.Duration, watches)
		began := time.Now()
		read := func() {
			pipe, _ := io.Pipe()
			body := s.add(pipe)
			if _, err := body.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the client sees %v", err)
			}
			ends <- time.Since(began)
			_ = body.Close()
		}
		for range watches {
			go read()
		}
		synctest.Wait()
		s.endAll(t.Context(), within)
		last := -time.Second
		for range watches {
			if end := <-ends; end <= last || end > within {
				t.Errorf("a watch ended after %v, the one before after %v", end, last)
			} else {
				last = end
			}
		}
		before := time.Now()
		go read()
		<-ends
		if !time.Now().Equal(before) {
			t.Error("a late watch went on")
		}
	})
}
