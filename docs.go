// Package regent has the documentation of this version, which servers serve beside their page.
package regent

import "embed"

// Docs has what people read, and its pictures, by the paths in the repository.
//
//go:embed README.md CHANGELOG.md CODE_OF_CONDUCT.md CONTRIBUTING.md GOVERNANCE.md docs/*.md docs/reference/*.md docs/pictures
var Docs embed.FS
