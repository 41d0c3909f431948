package controllers

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

type questions []string

func (a *questions) RoundTrip(req *http.Request) (*http.Response, error) {
	*a = append(*a, req.URL.Path)
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Header: http.Header{}}, nil
}

// What another object says of a name becomes part of no request unless an object can have it (I18).
func TestWhatNoObjectIsCalledIsAskedOfNobodyI18(t *testing.T) {
	var sent questions
	clients, err := NewClients(&rest.Config{Host: "http://127.0.0.1"}, &http.Client{Transport: &sent})
	if err != nil {
		t.Fatal(err)
	}
	objects := clients.Metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	for _, name := range []string{"", ".", "..", "a/b", "../../../watch/namespaces/default/configmaps", "%2e", "a\x00"} {
		for _, of := range []struct{ namespace, name string }{{"default", name}, {"", name}, {name, "x"}} {
			if of.namespace == "" && of.name == "x" {
				continue
			}
			in := objects.Namespace(of.namespace)
			_, err := in.Get(t.Context(), of.name, metav1.GetOptions{})
			_, patched := in.Patch(t.Context(), of.name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			for _, err := range []error{err, patched, in.Delete(t.Context(), of.name, metav1.DeleteOptions{})} {
				if !apierrors.IsNotFound(err) {
					t.Errorf("%+v: %v, want that there is no such object", of, err)
				}
			}
		}
	}
	if len(sent) > 0 {
		t.Errorf("asked for %q", sent)
	}
	if _, err := objects.Namespace("default").Get(t.Context(), "a\x01b", metav1.GetOptions{}); err == nil || len(sent) != 1 || sent[0] != "/api/v1/namespaces/default/configmaps/a\x01b" {
		t.Errorf("asked for %q, %v: roles of older versions may have such names", sent, err)
	}
}
