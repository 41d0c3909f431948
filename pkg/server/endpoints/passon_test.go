package endpoints

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the leader answers counts for the user, unless it refuses the replica that asks for the user.
func TestALeaderThatRefusesTheReplicaHasNotRefusedTheUser(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		body   string
		reason metav1.StatusReason
	}{
		"it does not lead any more":       {409, `{"reason":"Conflict","code":409,"message":"does not lead"}`, metav1.StatusReasonConflict},
		"nobody of that name follows it":  {404, `{"reason":"NotFound","code":404}`, metav1.StatusReasonNotFound},
		"it has not heard of the replica": {401, `{"reason":"Unauthorized","code":401}`, metav1.StatusReasonUnknown},
		"it runs an older version":        {403, `{"reason":"Forbidden","code":403}`, metav1.StatusReasonUnknown},
		"something else answers":          {502, `<html>`, metav1.StatusReasonUnknown},
		"it answers nonsense":             {200, `<html>`, metav1.StatusReasonUnknown},
	} {
		if _, err := replied(c.code, []byte(c.body)); err == nil || apierrors.ReasonForError(err) != c.reason {
			t.Errorf("%s: %v, want reason %q", name, err, c.reason)
		}
	}
}
