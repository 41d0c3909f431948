package apis

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/regent-project/regent/test/etcdtest"
)

// The document of /openapi/v2 is made when somebody asks for it first, of all that is served, and once.
func TestTheDocumentOfAllResourcesIsMadeOnce(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	var asking sync.WaitGroup
	var tags [8]string
	for n := range tags {
		asking.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/clusters/aa/openapi/v2", nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s, %v", resp.Status, err)
			}
			for _, r := range Resources() {
				path := "/" + r.GVR.Version + "/" + r.GVR.Resource + `":`
				if r.Namespaced {
					path = "/" + r.GVR.Version + "/namespaces/{namespace}/" + r.GVR.Resource + `":`
				}
				if !strings.Contains(string(body), path) {
					t.Errorf("%v is not described", r.GVR)
				}
			}
			tags[n] = resp.Header.Get("ETag")
		})
	}
	asking.Wait()
	for _, tag := range tags {
		if tag == "" || tag != tags[0] {
			t.Errorf("the documents differ: %q", tags)
		}
	}
}
