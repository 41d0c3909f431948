#!/usr/bin/env bash
# Usage: adopt.sh [--any-commit] [--measure] CHECKOUT
#        adopt.sh --undo CHECKOUT
#
# Applies regent.patch to a checkout of kcp, adds Regent's packages to its go.mod, and builds bin/kcp-regent there. README.md has the details.
#
#   --any-commit  tries the patch on another commit than the one that it was made for
#   --measure     builds bin/kcp-stock first, without the patch, and compares both (BenchmarkKcp: some 20 minutes)
#   --undo        puts the checkout back as it was before
set -euo pipefail

commit=dac74f5955f1d4c703e87dd5cfecbc9a0a514643
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
regent=$(cd "$here/../.." && pwd)
module=github.com/regent-project/regent/pkg/election
patch=$here/regent.patch
any_commit=false measure=false undo=false

fail() { echo "adopt.sh: $*" >&2; exit 1; }
usage() { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

while [[ ${1:-} == -* ]]; do
	case $1 in
	--any-commit) any_commit=true ;;
	--measure) measure=true ;;
	--undo) undo=true ;;
	-h | --help) usage; exit ;;
	*) usage >&2; fail "unknown option $1" ;;
	esac
	shift
done
if [[ $# -ne 1 ]]; then
	usage >&2
	fail "give the path to a checkout of kcp"
fi
if $undo && ($any_commit || $measure); then
	fail "--undo takes no other option"
fi
top=$(git -C "$1" rev-parse --show-toplevel 2>/dev/null) || fail "$1 is no git checkout: git clone https://github.com/kcp-dev/kcp, and git checkout $commit"
cd "$top"
[[ $(head -n1 go.mod 2>/dev/null) == "module github.com/kcp-dev/kcp" ]] || fail "$PWD is no checkout of kcp: its go.mod is of another module"
saved=$(git rev-parse --git-path regent) # what go.mod, go.sum were before, and the patch as it was applied

if $undo; then
	[[ -d $saved ]] || fail "nothing to undo: adopt.sh was not here, or has been undone"
	git apply --reverse "$saved/regent.patch" || fail "the patched files have changed since: undo these changes first"
	cp "$saved/go.mod" "$saved/go.sum" .
	rm -rf "$saved" bin/kcp-regent bin/kcp-stock
	exit
fi

[[ ! -d $saved ]] || fail "the patch is applied already: adopt.sh --undo first"
head=$(git rev-parse HEAD)
if [[ $head != "$commit" ]] && ! $any_commit; then
	fail "the checkout is at $head, the patch is for $commit: git checkout $commit, or try --any-commit"
fi
git apply --check "$patch" || fail "the patch does not apply: the checkout has changes, or another commit"
if $measure; then
	go build -o bin/kcp-stock ./cmd/kcp
fi

mkdir -p "$saved"
cp go.mod go.sum "$patch" "$saved"
git apply "$patch"
go mod edit \
	-require="$module@v0.0.0" -replace="$module=$regent/pkg/election" \
	-require="$module/etcdfence@v0.0.0" -replace="$module/etcdfence=$regent/pkg/election/etcdfence"
# The linker sets a default of GODEBUG, because //go:debug refuses this key. With it join knows in a microsecond to which term a goroutine belongs; without
# it, join looks at all goroutines.
go build -mod=mod -ldflags=-X=runtime.godebugDefault=tracebacklabels=1 -o bin/kcp-regent ./cmd/kcp
echo "$PWD/bin/kcp-regent is kcp with Regent's packages. adopt.sh --undo puts the checkout back."

if $measure; then
	kcp=$PWD
	make -C "$regent" bin/etcd
	cd "$regent/test/bench"
	go test -run '^$' -bench '^BenchmarkKcp$' -benchtime 1x -timeout 2h . -kcp-stock "$kcp/bin/kcp-stock" -kcp-regent "$kcp/bin/kcp-regent"
fi
