package fence

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

func TestIsFencedKnowsARefusalAndNothingElse(t *testing.T) {
	maps := corev1.Resource("configmaps")
	other := statusOf(t, NewRefusal("other"))
	other.Reason = ""
	for _, c := range []struct {
		err  error
		want bool
	}{
		{NewRefusal("over"), true},
		{NewRefusal("over", metav1.StatusCause{Type: CurrentTerm, Message: "held by nobody"}), true},
		{fmt.Errorf("reconcile: %w", NewRefusal("over")), true},
		{nil, false},
		{errors.New(string(Reason)), false},
		{&apierrors.StatusError{ErrStatus: *other}, false},
		{apierrors.NewConflict(maps, "x", errors.New("changed")), false},
		{apierrors.NewForbidden(maps, "x", errors.New("no")), false},
		{ErrNoTerm, false},
	} {
		if got := IsFenced(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}

func TestARefusalIsNoConflictAndNothingToRetry(t *testing.T) {
	for name, is := range map[string]func(error) bool{
		"a conflict": apierrors.IsConflict, "a timeout": apierrors.IsTimeout, "a server's timeout": apierrors.IsServerTimeout,
		"too many requests": apierrors.IsTooManyRequests, "an internal error": apierrors.IsInternalError,
		"not found": apierrors.IsNotFound, "an object that exists": apierrors.IsAlreadyExists,
	} {
		if is(NewRefusal("over")) {
			t.Errorf("it is taken for %s", name)
		}
	}
	if seconds, delayed := apierrors.SuggestsClientDelay(NewRefusal("over")); delayed {
		t.Errorf("it suggests to try again after %d s", seconds)
	}
	tries := 0
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		tries++
		return fmt.Errorf("update: %w", NewRefusal("over"))
	})
	if !IsFenced(err) || tries != 1 {
		t.Errorf("tried %d times, then %v", tries, err)
	}
}

// For some codes client-go repeats a request whose answer has a Retry-After.
func TestTheStockClientSendsARefusedWriteOnce(t *testing.T) {
	refusal := statusOf(t, NewRefusal("over", metav1.StatusCause{Type: CurrentTerm, Message: "held by nobody"}))
	for _, c := range []struct {
		code       int
		retryAfter []string
		want       int32
	}{
		{http.StatusPreconditionFailed, nil, 1},
		{http.StatusPreconditionFailed, []string{"0"}, 1},
		// For comparison: client-go repeats other refusals ten times.
		{http.StatusTooManyRequests, []string{"0"}, 11},
		{http.StatusInternalServerError, []string{"0"}, 11},
	} {
		got, err := updateAgainst(t, c.code, c.retryAfter, refusal)
		if got != c.want {
			t.Errorf("%d with Retry-After %q: sent %d times, want %d", c.code, c.retryAfter, got, c.want)
		}
		if c.code == http.StatusPreconditionFailed && (!IsFenced(err) || apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, CurrentTerm)) {
			t.Errorf("the client made %#v of the refusal", err)
		}
	}
}

// updateAgainst sends an update to a server that always gives the same answer, and returns how often it was asked.
func updateAgainst(t *testing.T, code int, retryAfter []string, status *metav1.Status) (times int32, _ error) {
	t.Helper()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if retryAfter != nil {
			w.Header()["Retry-After"] = retryAfter
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(status)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: server.URL, QPS: -1}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps("n").Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.UpdateOptions{})
	return requests.Load(), err
}
