module github.com/regent-project/regent/test/tools/modules

go 1.26.0

require (
	golang.org/x/mod v0.42.0
	golang.org/x/tools v0.51.0
)

require golang.org/x/sync v0.23.0 // indirect
