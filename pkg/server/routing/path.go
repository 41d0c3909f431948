package routing

import (
	"errors"
	"net/url"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/clusters"
)

// prefix begins the URL path of every request for a logical cluster.
const prefix = "/clusters/"

var (
	errNoCluster   = errors.New("the request names no logical cluster: its path must begin with /clusters/<path or name>, as in /clusters/root/api")
	errBadCluster  = errors.New("the path after /clusters/ is no logical cluster: it must be colon-separated names of lower-case letters, digits and dashes, as in root:team:project")
	errBadEncoding = errors.New("the URL path must not contain encoded slashes, empty or dot segments")
)

// Split splits the URL of a request as a shard does: see splitPath. The error is the answer of a shard.
func Split(u *url.URL) (cluster logicalcluster.Path, rest string, err error) {
	if cluster, rest, err = splitPath(u); err != nil {
		return logicalcluster.Path{}, "", urlFault(err)
	}
	return cluster, rest, nil
}

// splitPath splits a request's URL into the logical cluster that it names and the path within it, which begins with a
// slash. That path is decoded. It has no segments that another decoding or cleaning could turn into a path of another
// cluster.
func splitPath(u *url.URL) (cluster logicalcluster.Path, rest string, err error) {
	after, ok := strings.CutPrefix(u.Path, prefix)
	if !ok {
		return logicalcluster.Path{}, "", errNoCluster
	}
	if hasEncodedSlash(u.RawPath) {
		return logicalcluster.Path{}, "", errBadEncoding
	}
	segment, rest, _ := strings.Cut(after, "/")
	rest = "/" + rest
	if !isClean(rest) {
		return logicalcluster.Path{}, "", errBadEncoding
	}
	path := logicalcluster.NewPath(segment)
	if segment == clusters.Wildcard.String() {
		return path, rest, nil
	}
	if !path.IsValid() {
		return logicalcluster.Path{}, "", errBadCluster
	}
	return path, rest, nil
}

// isClean reports whether the path has no zero character, no segments "." or "..", and no empty segment except the
// last. Other control characters are in names of roles that versions before 0.2 have created, and that somebody may
// want to delete.
func isClean(path string) bool {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		if s == "." || s == ".." || (s == "" && i < len(segments)-1) {
			return false
		}
	}
	return !strings.ContainsRune(path, 0)
}

// hasEncodedSlash reports whether a path has encoded characters that would separate segments once decoded.
func hasEncodedSlash(rawPath string) bool {
	lower := strings.ToLower(rawPath)
	return strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c")
}

// StepDownPath is the URL path of requests that ask a replica to end its term; with ?shard=<its shard>, the term of
// whoever leads the shard.
const StepDownPath = "/election/step-down"

// StatusPrefix begins the URL paths at which a replica says how it, its shard and its installation are doing.
const StatusPrefix = "/regent/v1"

// ProcessPaths are the replica's own endpoints, with all paths below them: they belong to the process and not to a
// logical cluster. It is never changed.
var ProcessPaths = []string{
	"/livez", "/readyz", "/healthz", "/metrics", "/version", "/debug", "/statusz", "/flagz", "/configz", "/ui", StatusPrefix, StepDownPath,
}

// ofTheProcess reports whether a path is one of ProcessPaths, or below it.
func ofTheProcess(path string) bool {
	for _, p := range ProcessPaths {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}
