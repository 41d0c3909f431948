package bench

import (
	"io"
	"net/http"
	"testing"

	clientrest "k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

func httpClient(b *testing.B, of *harness.Replica) *http.Client {
	b.Helper()
	client, err := clientrest.HTTPClientFor(of.AdminConfig("root"))
	if err != nil {
		b.Fatal(err)
	}
	return client
}

// read returns the size of an answer, which must be 200. It asks again if the server says that it took too long.
func read(b *testing.B, client *http.Client, req *http.Request) int {
	b.Helper()
	for range 5 {
		if size, late := readOnce(b, client, req); !late {
			return size
		}
	}
	b.Fatalf("%s takes too long", req.URL.Path)
	return 0
}

func readOnce(b *testing.B, client *http.Client, req *http.Request) (size int, late bool) {
	b.Helper()
	resp, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusGatewayTimeout {
		return 0, true
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatalf("%s: %d %v %.300s", req.URL.Path, resp.StatusCode, err, body)
	}
	return len(body), false
}
