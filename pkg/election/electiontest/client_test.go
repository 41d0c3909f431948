package electiontest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/election/electiontest"
)

// In both cases the write is committed at once, but the caller that gave up does not know that.
func TestAnAnswerThatIsHeldBackIsThatOfAWriteThatIsThere(t *testing.T) {
	for name, c := range map[string]struct {
		patience time.Duration
		err      error
	}{
		"waited for":      {patience: time.Minute},
		"not waited long": {patience: time.Second, err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore("work")
				client := store.Client()
				client.Next(electiontest.Create, electiontest.Fault{AnswerDelay: 2 * time.Second})
				ctx, cancel := context.WithTimeout(t.Context(), c.patience)
				defer cancel()
				sent := time.Now()
				_, err := client.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{})
				if !errors.Is(err, c.err) {
					t.Errorf("the answer is %v, want %v", err, c.err)
				}
				if took, want := time.Since(sent), min(c.patience, 2*time.Second); took != want {
					t.Errorf("it came after %v, want %v", took, want)
				}
				if history := store.History(); len(history) != 1 || !history[0].At.Equal(sent) {
					t.Errorf("committed %v, sent at %v", history, sent)
				}
				client.Wait()
			})
		})
	}
}
