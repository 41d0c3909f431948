#!/bin/sh
# Builds etcd into the file $1. On Linux its disk can be made slow (package slowdisk): what syncs files, in the modules
# below _modules, is ours. Go refuses to overlay files of the module cache, so those modules are copied out of it, beside
# the binary, and the files put over the copies.
set -eu
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")"
go=${GO:-go}
copies=$(dirname "$out")/.modules
mkdir -p "$copies"
mod=$copies/etcd.mod
cp go.mod "$mod.$$"
for module in go.etcd.io/bbolt go.etcd.io/etcd/client/pkg/v3; do
	"$go" mod download "$module"
	source=$("$go" list -m -f '{{.Dir}}' "$module")
	copy=$copies/$module@$("$go" list -m -f '{{.Version}}' "$module")
	if [ ! -d "$copy" ]; then # renamed into place: two builds may run at the same time
		mkdir -p "$copy.$$"
		cp -R "$source/." "$copy.$$"
		chmod -R u+w "$copy.$$"
		if [ -d "$copy" ]; then rm -rf "$copy.$$"; else mv "$copy.$$" "$copy"; fi
	fi
	(cd "_modules/$module" && find . -name '*.go') | while read -r file; do
		cmp -s "_modules/$module/$file" "$copy/$file" || { cp "_modules/$module/$file" "$copy/$file.$$" && mv "$copy/$file.$$" "$copy/$file"; }
	done
	"$go" mod edit -replace="$module=$copy" "$mod.$$"
done
mv "$mod.$$" "$mod"
cp go.sum "$copies/etcd.sum"
"$go" build -ldflags "-s -w" -modfile="$mod" -o "$out" .
