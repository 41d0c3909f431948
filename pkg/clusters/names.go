package clusters

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

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
