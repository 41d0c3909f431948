package clusters

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// StorageKey inserts a logical cluster into the key of an object or a collection. prefix is the resource's, such as
// "/core/configmaps". key is one of upstream's keys below it, such as "/core/configmaps/default/a", or the prefix
// itself. The result is "/core/configmaps/<cluster>/default/a".
//
// No key leads out of its cluster: cluster must be the valid name of one cluster (not the wildcard), and no segment of
// the rest may be empty, "." or "..". One slash at the end is kept.
func StorageKey(prefix, key string, cluster logicalcluster.Name) (string, error) {
	if !IsValidName(cluster) {
		return "", fmt.Errorf("%q names no single logical cluster: a storage key needs one", cluster)
	}
	rest, err := below(prefix, key)
	if err != nil {
		return "", err
	}
	return prefix + "/" + cluster.String() + rest, nil
}

// ParseStorageKey is the inverse of StorageKey.
func ParseStorageKey(prefix, key string) (cluster logicalcluster.Name, clusterless string, err error) {
	rest, err := below(prefix, key)
	if err != nil {
		return "", "", err
	}
	first, rest, more := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if cluster = logicalcluster.Name(first); !IsValidName(cluster) {
		return "", "", fmt.Errorf("storage key %q names no logical cluster after %q", key, prefix)
	}
	if more {
		rest = "/" + rest
	}
	return cluster, prefix + rest, nil
}

// below returns what follows prefix in key: nothing, or a slash and valid segments.
func below(prefix, key string) (string, error) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok || rest != "" && rest[0] != '/' {
		return "", fmt.Errorf("storage key %q is not below %q", key, prefix)
	}
	inner := strings.TrimSuffix(strings.TrimPrefix(rest, "/"), "/")
	if inner == "" {
		if len(rest) > 1 {
			return "", fmt.Errorf("storage key %q has an empty segment", key)
		}
		return rest, nil
	}
	for segment := range strings.SplitSeq(inner, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsRune(segment, 0) {
			return "", fmt.Errorf("storage key %q has the segment %q, which could lead elsewhere", key, segment)
		}
	}
	return rest, nil
}

// IsSegment reports whether a name is one segment of a URL and of a storage key for everybody who reads them. Objects
// of other names do not exist. Nobody but the API server checks what other objects say of a name, such as an owner
// reference: ask this before a name becomes part of a request.
func IsSegment(name string) bool {
	return name != "" && len(content.IsPathSegmentName(name)) == 0 && !strings.ContainsRune(name, 0)
}

// IsObjectName reports whether an object may be created with a name: IsSegment, and it can be printed. Upstream, and
// versions of Regent before 0.2, let roles and bindings have control characters.
func IsObjectName(name string) bool {
	return IsSegment(name) && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}
