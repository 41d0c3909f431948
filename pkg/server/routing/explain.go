package routing

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/net"
)

// warningCode is that of all warnings of Kubernetes API servers: a miscellaneous one that lasts (RFC 7234, 5.5).
const warningCode = 299

// Explain adds to the refusal of a request for discovery why it is refused, as a warning (KEP-1693). kubectl asks for
// discovery first, and client-go does not read the body of such a refusal: a user would only see "the server could not
// find the requested resource", or "the server is currently unable to handle the request". Refusals of other requests
// get no warning, because clients show what their bodies say.
//
// urlPath may have /clusters/<path> before it or not. Call it before the answer's header is written.
func Explain(header http.Header, urlPath string, refusal error) {
	if !isDiscovery(urlPath) {
		return
	}
	if warning, err := net.NewWarningHeader(warningCode, "", refusal.Error()); err == nil {
		header.Add("Warning", warning)
	}
}

// isDiscovery reports whether a request for a path asks which resources there are, what they look like, or for the
// version.
func isDiscovery(urlPath string) bool {
	if _, after, ok := strings.Cut(urlPath, prefix); ok {
		_, urlPath, _ = strings.Cut(after, "/")
	}
	segments := strings.Split(strings.Trim(urlPath, "/"), "/")
	switch segments[0] {
	case "api":
		return len(segments) <= 2 // with a version
	case "apis":
		return len(segments) <= 3 // with a group and a version
	case "openapi", "version":
		return true
	}
	return false
}
