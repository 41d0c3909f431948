package front

import (
	"net/http"
	"strconv"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
)

// exchange is one request and its answer. It is the request's http.ResponseWriter.
type exchange struct {
	http.ResponseWriter
	path  string // of the request's URL
	began time.Time
	who   user.Info // nil: a token says who it is, or nobody does
	// shard is the shard that was asked. wait is how long the front has waited for the headers of its answers.
	shard string
	wait  time.Duration
	// code is the answer's status, and 0 before there is one. overhead is how long that took, without wait.
	code     int
	overhead time.Duration
	bytes    int64 // of the answer's body
	// noAnswer is why there is no answer, if a shard gives none.
	noAnswer *noAnswer
	// patience is how long the client of a watch may read nothing while there are events for it. 0: it is no watch.
	patience time.Duration
}

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(code int) {
	if x.code == 0 && code >= http.StatusOK {
		x.code, x.overhead = code, time.Since(x.began)-x.wait
	}
	x.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter. Of a watch, the client must have read it by the end of patience.
func (x *exchange) Write(p []byte) (int, error) {
	if x.code == 0 {
		x.WriteHeader(http.StatusOK)
	}
	if x.patience > 0 {
		_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now().Add(x.patience))
	}
	n, err := x.ResponseWriter.Write(p)
	x.bytes += int64(n)
	return n, err
}

// FlushError is for http.ResponseController. What was written before is with the client then.
func (x *exchange) FlushError() error {
	to := http.NewResponseController(x.ResponseWriter)
	err := to.Flush()
	if x.patience > 0 {
		_ = to.SetWriteDeadline(time.Time{})
	}
	return err
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// count adds the exchange to the metrics.
func (x *exchange) count() {
	shard := x.shard
	if shard == "" {
		shard = noShard
	}
	requests.WithLabelValues(shard, strconv.Itoa(x.code)).Inc()
	if x.shard != "" && x.code != 0 {
		overheads.WithLabelValues(shard).Observe(x.overhead.Seconds())
	}
}

// log writes the line of the access log. The audit ID leads to the shard's audit log.
func (x *exchange) log(req *http.Request) {
	name := ""
	if x.who != nil {
		name = x.who.GetName()
	}
	klog.FromContext(req.Context()).Info("Request", "from", req.RemoteAddr, "user", name, "method", req.Method, "uri", clip(req.URL.RequestURI()), "agent", clip(req.UserAgent()),
		"peer", x.shard, "code", x.code, "bytes", x.bytes, "took", time.Since(x.began), "added", x.overhead, "auditID", clip(x.Header().Get("Audit-Id")))
}

var _ http.ResponseWriter = (*exchange)(nil)
