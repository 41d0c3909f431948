package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// roomy is an etcd of 16 MiB that looks after its room all the time.
func roomy(t *testing.T) *Server {
	t.Helper()
	s, err := Start(t.Context(), Config{Directory: t.TempDir(), Quota: 16 << 20, roomPeriod: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

var megabyte = strings.Repeat("x", 1<<20)

// A key is rewritten until etcd is full of what was overwritten. Nobody has to compact, defragment or disarm.
func TestAnEtcdThatIsFullOfHistoryTakesWritesAgain(t *testing.T) {
	s := roomy(t)
	defer s.Close()
	client := client(t, s)
	defer func() { _ = client.Close() }()
	refused := 0
	for n := range 100 {
		_, err := client.Put(t.Context(), "k", fmt.Sprint(n, megabyte))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			refused++
			eventually(t, "writes are taken again", func() bool {
				_, err := client.Put(t.Context(), "small", "")
				return err == nil
			})
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("it never was full: this shows nothing")
	}
}

// What is in use stays. Deletions are taken, and make room.
func TestAnEtcdThatIsFullOfObjectsTakesWritesOnceSomeAreDeleted(t *testing.T) {
	s := roomy(t)
	defer s.Close()
	client := client(t, s)
	defer func() { _ = client.Close() }()
	var full bool
	stored := 0
	for ; stored < 100 && !full; stored++ {
		_, err := client.Put(t.Context(), fmt.Sprint("k", stored), megabyte)
		if full = errors.Is(err, rpctypes.ErrNoSpace); err != nil && !full {
			t.Fatal(err)
		}
	}
	if err := s.makeRoom(t.Context()); err == nil || !strings.Contains(err.Error(), "are in use without any history") {
		t.Errorf("%t: %v", full, err)
	}
	for n := 1; n < stored*2/3; n++ {
		if _, err := client.Delete(t.Context(), fmt.Sprint("k", n)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "writes are taken again", func() bool {
		_, err := client.Put(t.Context(), "small", "")
		return err == nil
	})
	if got := get(t, s, "k0"); got != megabyte {
		t.Error("an object is gone that nobody has deleted")
	}
}
