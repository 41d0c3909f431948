package storage

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheRevisionOfAMomentIsTheLastOneSeenByThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l timeline
		if _, err := l.at(time.Now()); !errors.Is(err, ErrUnknownMoment) {
			t.Errorf("of nothing: %v", err)
		}
		began := time.Now()
		const looks = 3000
		for n := range looks {
			if n != 1000 { // etcd did not answer
				l.add(time.Now(), int64(n))
			}
			time.Sleep(time.Second)
		}
		if len(l.moments) > 2*int(remembered/time.Second)+10 {
			t.Errorf("%d moments are remembered", len(l.moments))
		}
		for _, ago := range []time.Duration{0, time.Second, 90 * time.Second, 90*time.Second + time.Millisecond, remembered} {
			then := time.Now().Add(-ago)
			want := min(int64(then.Sub(began)/time.Second), looks-1)
			if got, err := l.at(then); err != nil || got != want {
				t.Errorf("%v ago: %d, %v, want %d", ago, got, err, want)
			}
		}
		if got, err := l.at(began.Add(-time.Second)); !errors.Is(err, ErrUnknownMoment) {
			t.Errorf("before all: %d, %v", got, err)
		}
	})
}
