module github.com/regent-project/regent/test/tools/pack

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/opencontainers/go-digest v1.0.0
	github.com/opencontainers/image-spec v1.1.1
	golang.org/x/crypto/x509roots/fallback v0.0.0-20261030153154-30a33513ff6d
)
