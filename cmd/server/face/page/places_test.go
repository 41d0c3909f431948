package page

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	aRead  = "/regent/v1/installation"
	aWrite = "/clusters/root/apis/core.kcp.io/v1alpha1/shards/root"
)

func TestAnotherServerIsAskedIfOneDoesNotAnswer(t *testing.T) {
	const soon = 3 * time.Second // a good one answers within that, on a busy machine, too
	for name, bad := range map[string]*back{"dead": dead(t), "hangs": behind(t, 0, ""), "500": behind(t, 500, "sick"), "503": behind(t, 503, "not yet")} {
		t.Run(name, func(t *testing.T) {
			good := behind(t, 200, `"well"`)
			each := time.Minute
			if name == "hangs" {
				each = soon
			}
			s := show(t, each, bad, good)
			bad.was()
			if code, body, _ := s.send("GET", aRead, ""); code != 200 || body != `"well"` {
				t.Fatalf("%d %s", code, body)
			}
			bad.was()
			if code, body, _ := s.send("GET", aRead, ""); code != 200 || body != `"well"` || bad.was() != nil {
				t.Errorf("the second time: %d %s; the one that answered last was not asked first", code, body)
			}
		})
	}
	t.Run("a refusal is an answer", func(t *testing.T) {
		first, second := behind(t, 403, "no"), behind(t, 200, "yes")
		s := show(t, time.Minute, first, second)
		if code, body, _ := s.send("GET", aRead, ""); code != 403 || body != "no" || second.was() != nil {
			t.Errorf("%d %s", code, body)
		}
	})
	t.Run("an answer that is too long is none", func(t *testing.T) {
		long, good := behind(t, 200, strings.Repeat("x", 100)), behind(t, 200, "{}")
		s := show(t, time.Minute, long, good)
		s.page.places.largest = 99
		if code, body, _ := s.send("GET", aRead, ""); code != 200 || body != "{}" {
			t.Errorf("%d %s", code, body)
		}
	})
}

func TestWhatNoServerAnswersIsTold(t *testing.T) {
	one, other := dead(t), dead(t)
	s := show(t, time.Minute, one, other)
	code, body, header := s.send("GET", aRead, "")
	if code != http.StatusBadGateway || !strings.Contains(body, one.URL) || !strings.Contains(body, other.URL) || header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s, %v", code, body, header)
	}
	sick := behind(t, 503, `"sick"`)
	s = show(t, time.Minute, one, sick)
	if code, body, _ := s.send("GET", aRead, ""); code != 503 || body != `"sick"` {
		t.Errorf("one is dead and one sick: %d %s", code, body)
	}
}

func TestAWriteIsNeverSentTwice(t *testing.T) {
	for name, c := range map[string]struct {
		first *back
		sent  bool // to the second
		want  int
	}{
		"dead":  {dead(t), true, 200},
		"hangs": {behind(t, 0, ""), false, http.StatusBadGateway},
		"500":   {behind(t, 500, ""), false, 500},
		"503":   {behind(t, 503, ""), false, 503},
		"409":   {behind(t, 409, ""), false, 409},
	} {
		t.Run(name, func(t *testing.T) {
			second := behind(t, 200, "{}")
			each := time.Minute
			if name == "hangs" { // nobody else is asked
				each = 300 * time.Millisecond
			}
			s := show(t, each, c.first, second)
			code, _, _ := s.send("PATCH", aWrite, `{"a":1}`, "Content-Type", "application/merge-patch+json")
			want := []string{"PATCH " + aWrite + ` {"a":1}`}
			if !c.sent {
				want = nil
			}
			if got := second.was(); code != c.want || !slices.Equal(got, want) {
				t.Errorf("%d, the second was asked %q; want %d, %q", code, got, c.want, want)
			}
			if got := c.first.was(); len(got) > 1 {
				t.Errorf("the first was asked %q", got)
			}
		})
	}
}

func TestReplicasOfTheRootShardAreLearned(t *testing.T) {
	replica, other := behind(t, 200, `"a replica"`), behind(t, 200, `"another shard"`)
	balancer := behind(t, 200, `{"root":"r","shards":[{"name":"a","replicas":[{"name":"z","url":`+strconv.Quote(other.URL)+`}]},{"name":"r","replicas":[{"name":"x","url":`+strconv.Quote(replica.URL)+`},{"name":"y"}]}]}`)
	s := show(t, time.Minute, balancer)
	if code, body, _ := s.send("GET", aRead, ""); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if code, body, _ := s.send("GET", "/regent/v1/terms", ""); code != 200 || replica.was() != nil {
		t.Fatalf("the replica was asked while the balancer answers: %d %s", code, body)
	}
	balancer.Close()
	if code, body, _ := s.send("GET", aRead, ""); code != 200 || body != `"a replica"` {
		t.Errorf("without the balancer: %d %s", code, body)
	}
	if got := other.was(); got != nil {
		t.Errorf("another shard was asked %q", got)
	}
}

func TestAReplicaOfTheShardIsAskedToHaveItsLeaderStepDown(t *testing.T) {
	agrees := behind(t, 200, `{"replica":"x","epoch":7}`)
	refuses := behind(t, 403, `{"kind":"Status","message":"you may not"}`)
	hangs := behind(t, 504, `{"kind":"Status","message":"it may have been asked"}`)
	for name, c := range map[string]struct {
		at   *back
		uri  string
		body string
		want int
		says string
	}{
		"it agrees":     {agrees, "?shard=r&epoch=7", `{"to":"y","reason":"test"}`, 200, `{"epoch":7,"replica":"x"}`},
		"no shard":      {agrees, "", `{}`, 404, "give --shard"},
		"no such shard": {agrees, "?shard=nope", `{}`, 404, "nope"},
		"no epoch":      {agrees, "?shard=r&epoch=x", `{}`, 400, "invalid syntax"},
		"no JSON":       {agrees, "?shard=r", `{`, 400, "unexpected EOF"},
		"it refuses":    {refuses, "?shard=r", `{}`, 403, "you may not"},
		"nobody knows":  {hangs, "?shard=r", `{}`, 504, "it may have been asked"},
	} {
		t.Run(name, func(t *testing.T) {
			server := behind(t, 200, `{"root":"r","shards":[{"name":"a","replicas":[]},{"name":"r","leader":"x","replicas":[{"name":"x","url":`+strconv.Quote(c.at.URL)+`},{"name":"y","url":`+strconv.Quote(agrees.URL)+`}]}]}`)
			s := show(t, time.Minute, server)
			c.at.was()
			code, body, _ := s.send("POST", "/election/step-down"+c.uri, c.body)
			if code != c.want || !strings.Contains(body, c.says) {
				t.Errorf("%d %s", code, body)
			}
			asked := c.at.was()
			if name == "it agrees" && !slices.Equal(asked, []string{`POST /election/step-down?shard=r&epoch=7 {"reason":"test","to":"y"}`}) {
				t.Errorf("the replica was asked %q", asked)
			}
		})
	}
}
