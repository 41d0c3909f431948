package controllertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// Decided returns a transport that reports writes which may commit although they were decided on stale state: an
// update, patch or deletion without the resourceVersion or uid of the object, the deletion of a collection, and the
// creation of an object whose name the server chooses. All requests go to next unchanged. breach may be called from
// many goroutines. docs/SUPERVISION.md, "Warm start", gives the reasons.
func Decided(next http.RoundTripper, breach func(error)) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if err := decided(req); err != nil {
			breach(fmt.Errorf("%s %s %w", req.Method, req.URL.Path, err))
		}
		return next.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// decided returns an error if req is a write that does not say what it was decided on. It leaves the body as it was.
func decided(req *http.Request) error {
	if !changes(req) {
		return nil
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return fmt.Errorf("cannot be read: %w", err)
		}
		_ = req.Body.Close()
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	switch req.Method {
	case http.MethodDelete:
		return decidedDeletion(body)
	case http.MethodPatch:
		return decidedPatch(types.PatchType(req.Header.Get("Content-Type")), body)
	}
	obj, err := metadataOf(body)
	switch {
	case err != nil:
		return err
	case req.Method == http.MethodPost && (obj.Name == "" || obj.GenerateName != ""):
		return errors.New("leaves the name to the server: a leader that repeats it makes a second one")
	case req.Method == http.MethodPut && obj.ResourceVersion == "":
		return errors.New("has no resourceVersion")
	}
	return nil
}

// changes reports whether req is a write.
func changes(req *http.Request) bool {
	return req.Method != http.MethodGet && req.Method != http.MethodHead && req.Method != http.MethodOptions
}

func decidedDeletion(body []byte) error {
	options := &metav1.DeleteOptions{}
	if err := decode(body, options); err != nil {
		return err
	}
	if p := options.Preconditions; p == nil || p.UID == nil && p.ResourceVersion == nil {
		return errors.New("has no precondition on uid or resourceVersion")
	}
	return nil
}

func decidedPatch(kind types.PatchType, body []byte) error {
	if kind == types.JSONPatchType {
		var steps []struct{ Op, Path string }
		if err := json.Unmarshal(body, &steps); err != nil {
			return fmt.Errorf("cannot be decoded: %w", err)
		}
		for _, s := range steps {
			if s.Op == "test" && (s.Path == "/metadata/resourceVersion" || s.Path == "/metadata/uid") {
				return nil
			}
		}
		return errors.New("does not test uid or resourceVersion")
	}
	obj, err := metadataOf(body)
	if err == nil && obj.ResourceVersion == "" && obj.UID == "" {
		err = errors.New("has neither uid nor resourceVersion")
	}
	return err
}

func metadataOf(body []byte) (metav1.ObjectMeta, error) {
	if !isProtobuf(body) {
		obj := &metav1.PartialObjectMetadata{}
		err := decode(body, obj)
		return obj.ObjectMeta, err
	}
	obj, _, err := kubescheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("cannot be decoded: %w", err)
	}
	accessor, ok := obj.(metav1.Object)
	if !ok {
		return metav1.ObjectMeta{}, fmt.Errorf("is a %T, which has no metadata", obj)
	}
	return metav1.ObjectMeta{
		Name: accessor.GetName(), GenerateName: accessor.GetGenerateName(),
		UID: accessor.GetUID(), ResourceVersion: accessor.GetResourceVersion(),
	}, nil
}

// decode decodes JSON, YAML, or options in protobuf. An empty body is an empty object.
func decode(body []byte, into any) error {
	var err error
	switch options, ok := into.(*metav1.DeleteOptions); {
	case isProtobuf(body) && ok:
		_, _, err = kubescheme.Codecs.UniversalDeserializer().Decode(body, nil, options)
	case isProtobuf(body):
		err = fmt.Errorf("protobuf for a %T", into)
	default:
		err = yaml.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("cannot be decoded: %w", err)
	}
	return nil
}

func isProtobuf(body []byte) bool { return strings.HasPrefix(string(body), "k8s\x00") }
