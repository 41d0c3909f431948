#!/usr/bin/env bash
# Usage: adopt.sh DIRECTORY
#
# Copies two commands of the published module k8s.io/kubernetes into DIRECTORY, applies both patches, and builds them there:
# DIRECTORY/bin/kube-controller-manager and DIRECTORY/bin/kube-apiserver. All else is compiled from the modules as they are. README.md has the details.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
regent=$(cd "$here/../.." && pwd)
election=github.com/regent-project/regent/pkg/election
module=kubernetes-with-regent
go=${GO:-go}

fail() { echo "adopt.sh: $*" >&2; exit 1; }
usage() { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

case ${1:-} in
-h | --help) usage; exit ;;
"" | -*) usage >&2; fail "give a directory, which is made if it does not exist" ;;
esac
mkdir -p "$1"
cd "$1"
if [[ -n $(ls -A) && $(head -n1 go.mod 2>/dev/null) != "module $module" ]]; then
	fail "$PWD has something else in it: give a new directory"
fi

# the versions are those with which the benchmarks run Kubernetes
cp "$regent/test/tools/kubernetes/go.mod" "$regent/test/tools/kubernetes/go.sum" .
$go mod edit -module="$module" \
	-require="$election@v0.0.0" -replace="$election=$regent/pkg/election" \
	-require="$election/etcdfence@v0.0.0" -replace="$election/etcdfence=$regent/pkg/election/etcdfence"
version=$($go list -mod=mod -m -f '{{.Version}}' k8s.io/kubernetes)
kubernetes=$($go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
rm -rf cmd
for command in kube-controller-manager kube-apiserver; do
	mkdir -p "cmd/$command/app"
	cp "$kubernetes/cmd/$command"/*.go "cmd/$command"
	cp "$kubernetes/cmd/$command"/app/*.go "cmd/$command/app"
done
chmod -R u+w cmd
find cmd -name '*_test.go' -delete
for patch in "$here"/*.patch; do # DIRECTORY may be in somebody's repository: this is not about it
	GIT_CEILING_DIRECTORIES=$(dirname "$PWD") git apply "$patch" || fail "$(basename "$patch") does not apply to k8s.io/kubernetes $version"
done
# a command imports its package by name, and that is another name here
sed -i.bak "s#\"k8s.io/kubernetes/cmd/\(kube-[a-z-]*\)/app\"#\"$module/cmd/\1/app\"#" cmd/*/*.go
rm cmd/*/*.bak

# The linker sets a default of GODEBUG, because //go:debug refuses this key. With it join knows in a microsecond to which term a goroutine belongs; without
# it, join looks at all goroutines.
CGO_ENABLED=0 $go build -mod=mod -trimpath -ldflags="-s -w -X=runtime.godebugDefault=tracebacklabels=1 -X=k8s.io/component-base/version.gitVersion=$version" -o bin/ ./cmd/...
echo "$PWD/bin has kube-controller-manager and kube-apiserver $version with Regent's packages."
