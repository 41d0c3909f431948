package edge

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// maxQuery is how long a URL's query may be, in bytes. A selector of a megabyte has 300,000 terms. A list
	// compares them with each object, and a watch keeps them, some 25 MB, and compares them with each object that
	// is written, at its writer's cost.
	maxQuery = 16 << 10
	// maxWatchHeader is how many bytes the header of a watch may have, which is kept as long as the watch is open.
	maxWatchHeader = 128 << 10
)

// withShortHeads returns a handler that refuses requests whose selectors would cost others too much, and watches that
// would keep too much.
func withShortHeads(next http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if n := len(req.URL.RawQuery); n > maxQuery {
			refuseHead(w, req, s, http.StatusRequestURITooLong, fmt.Sprintf("the query of the URL has %d bytes and may have %d: use shorter selectors", n, maxQuery))
			return
		}
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.Verb == "watch" {
			if n := sizeOfHeader(req.Header); n > maxWatchHeader {
				refuseHead(w, req, s, http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the header of the request has %d bytes, and that of a watch may have %d", n, maxWatchHeader))
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// refuseHead refuses a request because of its URL or header.
func refuseHead(w http.ResponseWriter, req *http.Request, s runtime.NegotiatedSerializer, status int, message string) {
	refuse(w, req, s, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(status), Reason: metav1.StatusReasonUnknown, Message: message}})
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, req *http.Request, s runtime.NegotiatedSerializer, err error) {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, req)
}

func sizeOfHeader(header http.Header) (bytes int) {
	for name, values := range header {
		for _, value := range values {
			bytes += len(name) + len(value)
		}
	}
	return bytes
}
