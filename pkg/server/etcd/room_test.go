package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/regent-project/regent/test/until"
)

// roomy is an etcd of 16 MiB that looks after its room so often.
func roomy(t *testing.T, period time.Duration) *Server {
	t.Helper()
	s, err := Start(t.Context(), Config{Directory: t.TempDir(), Quota: 16 << 20, roomPeriod: period})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var megabyte = strings.Repeat("x", 1<<20)

// A key is rewritten until etcd is full of what was overwritten. Nobody has to compact, defragment or disarm.
func TestAnEtcdThatIsFullOfHistoryTakesWritesAgain(t *testing.T) {
	s := roomy(t, 50*time.Millisecond)
	defer s.Close()
	client := client(t, s)
	defer func() { _ = client.Close() }()
	refused := 0
	for n := 0; n < 100 && refused < 2; n++ {
		_, err := client.Put(t.Context(), "k", fmt.Sprint(n, megabyte))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			refused++
			until.Within(t, 3*time.Minute, "writes are taken again", func() bool {
				_, err := client.Put(t.Context(), "small", "")
				return err == nil
			})
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused < 2 {
		t.Errorf("it was full %d times: this shows nothing", refused)
	}
}

// What is in use stays. Deletions are taken, and make room.
func TestAnEtcdThatIsFullOfObjectsTakesWritesOnceSomeAreDeleted(t *testing.T) {
	s := roomy(t, time.Hour)
	defer s.Close()
	client := client(t, s)
	defer func() { _ = client.Close() }()
	var full error // of objects: etcd counts what is free in its file, too, and is full before
	stored := 0
	for n := 0; n < 100 && full == nil; n++ {
		switch _, err := client.Put(t.Context(), fmt.Sprint("k", stored), megabyte); {
		case errors.Is(err, rpctypes.ErrNoSpace):
			full = s.makeRoom(t.Context())
		case err != nil:
			t.Fatal(err)
		default:
			stored++
		}
	}
	if full == nil || !strings.Contains(full.Error(), "are in use without any history") {
		t.Fatalf("with %d MiB: %v", stored, full)
	}
	if _, err := client.Put(t.Context(), "small", ""); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a write is answered with %v", err)
	}
	for n := 1; n < stored*2/3; n++ {
		if _, err := client.Delete(t.Context(), fmt.Sprint("k", n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.makeRoom(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := client.Put(t.Context(), "small", ""); err != nil {
		t.Error(err)
	}
	if got := get(t, s, "k0"); got != megabyte {
		t.Error("an object is gone that nobody has deleted")
	}
}
