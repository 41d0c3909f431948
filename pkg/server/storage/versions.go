package storage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// versionAnnotation is on an object, as it is stored, that has not changed since its logical cluster moved here: the
// epoch of the logical cluster, and the version that the other shard showed, which is shown here, too. So what clients
// know of the object is good. Nobody sees the annotation, and the first write takes it away.
const versionAnnotation = "internal.regent.dev/version"

// WithVersion returns an object of a logical cluster that moves here, as it is stored. was is as the other shard has
// it, where it has been since a revision; the epochs are those of the logical cluster there and here.
func WithVersion(was []byte, revision, thereEpoch, hereEpoch int64) ([]byte, error) {
	return withAnnotations(was, func(annotations map[string]string) {
		shown, ok := versionIn(annotations, thereEpoch)
		if !ok {
			shown = shownAs(strconv.FormatInt(revision, 10), thereEpoch)
		}
		annotations[versionAnnotation] = strconv.FormatInt(hereEpoch, 10) + "." + shown
	})
}

// WithoutVersion returns an object that is put back to what it was: that is a change, and its version a new one.
func WithoutVersion(was []byte) ([]byte, error) {
	if !bytes.Contains(was, []byte(versionAnnotation)) {
		return was, nil
	}
	return withAnnotations(was, func(annotations map[string]string) { delete(annotations, versionAnnotation) })
}

// withAnnotations returns an object with other annotations.
func withAnnotations(was []byte, change func(map[string]string)) ([]byte, error) {
	var obj, metadata map[string]json.RawMessage
	annotations := map[string]string{}
	if err := json.Unmarshal(was, &obj); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnstorable, err)
	}
	if err := json.Unmarshal(obj["metadata"], &metadata); err != nil {
		return nil, fmt.Errorf("%w: its metadata: %w", ErrUnstorable, err)
	}
	if text := metadata["annotations"]; text != nil {
		if err := json.Unmarshal(text, &annotations); err != nil {
			return nil, fmt.Errorf("%w: its annotations: %w", ErrUnstorable, err)
		}
	}
	if annotations == nil { // null
		annotations = map[string]string{}
	}
	change(annotations)
	var err error
	if metadata["annotations"], err = json.Marshal(annotations); err != nil {
		return nil, err
	}
	if obj["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}

// versionIn returns the version that annotations say is shown in an epoch. ok is false if they do not.
func versionIn(annotations map[string]string, epoch int64) (version string, ok bool) {
	of, version, ok := strings.Cut(annotations[versionAnnotation], ".")
	return version, ok && epoch > 0 && of == strconv.FormatInt(epoch, 10) && numberOf(version) > 0
}

// takeVersion removes the annotation from an object, which may share it with others, and returns the version that is
// shown in an epoch. ok is false if there is none.
func takeVersion(obj metav1.Object, epoch int64) (version string, ok bool) {
	annotations := obj.GetAnnotations()
	if annotations[versionAnnotation] == "" {
		return "", false
	}
	version, ok = versionIn(annotations, epoch)
	left := maps.Clone(annotations)
	delete(left, versionAnnotation)
	if len(left) == 0 {
		left = nil
	}
	obj.SetAnnotations(left)
	return version, ok
}

// versionless returns an update that changes an object whose version is that of its write.
func versionless(update storage.UpdateFunc) storage.UpdateFunc {
	return func(there runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		dropVersion(there)
		next, ttl, err := update(there, res)
		if err == nil {
			dropVersion(next)
		}
		return next, ttl, err
	}
}

// dropVersion removes the annotation from an object that nobody shares.
func dropVersion(obj runtime.Object) {
	if is := metadataOf(obj); is != nil {
		_, _ = takeVersion(is, 0)
	}
}

// Resume is how watches go on that were of a logical cluster on the shard from which it has moved here.
type Resume struct {
	// Epoch is the one of the logical cluster there.
	Epoch int64 `json:"epoch"`
	// Last is the revision of the last change there of each resource, as the keys of bundles begin, since Since. A
	// client that has seen that, or Since if there is none, has seen all.
	Since int64            `json:"since"`
	Last  map[string]int64 `json:"last,omitempty"`
	// Until is the revision there when it left. 0: that is not known. What is much later was told by an etcd that
	// was restored since.
	Until int64 `json:"until,omitempty"`
	// Start is a revision here from which on there are changes that were made here.
	Start int64 `json:"start,omitempty"`
}

// resumeSlack is by how much a watch may have been told of later revisions than that at which its logical cluster left:
// etcd goes on for some seconds before the watch ends. A restore goes further (docs/BACKUP.md, --bump-revision).
const resumeSlack = 10_000_000

// from returns the revision from which a watch goes on that was told of a version there. ok is false if it may have
// missed something.
func (r Resume) from(resource, version string) (revision string, ok bool) {
	n := numberOf(version)
	at := n & (1<<revisionBits - 1)
	if r.Start == 0 || n == 0 || n>>revisionBits != r.Epoch || at < max(r.Since, r.Last[resource]) || r.Until > 0 && at > r.Until+resumeSlack {
		return "", false
	}
	return strconv.FormatInt(r.Start, 10), true
}

// ResumeOf returns how watches go on of a logical cluster that has come from another shard.
func ResumeOf(lc metav1.Object) (r Resume) {
	if err := json.Unmarshal([]byte(lc.GetAnnotations()[clusters.ResumeAnnotation]), &r); err != nil {
		return Resume{}
	}
	return r
}
