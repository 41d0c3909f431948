#!/bin/sh
# Builds programs of the release before into bin/releases/<version>, from its commit in this repository, and has
# bin/before lead there. What is there of the same commit stays. Which release that is: the last one of
# test/releases/releases.txt that is not the commit of this tree.
set -eu
cd "$(dirname "$0")/../.."
releases=test/releases/releases.txt
first=623cfed # until a release is recorded
head=$(git rev-parse HEAD)
release=
if [ -f "$releases" ]; then
	release=$(awk -v head="$head" '/^v/ && $2 != head { line = $1 " " $2 } END { print line }' "$releases")
fi
release=${BEFORE:-$release} # another one: BEFORE="v0.1.0 <commit>"
: "${release:=v0.0.0-$first $first}"
version=${release% *}
commit=$(git rev-parse --verify --quiet "${release#* }^{commit}") || {
	echo "the commit ${release#* } of release $version is not in this repository: fetch the whole history" >&2
	exit 1
}
directory=bin/releases/$version
mkdir -p "$directory"
if [ "$(cat "$directory/commit" 2>/dev/null)" != "$commit" ]; then
	find "$directory" -mindepth 1 -maxdepth 1 -type f -exec rm -f {} +
	echo "$commit" >"$directory/commit"
fi
missing=
for program in "$@"; do
	[ -x "$directory/$program" ] || missing="$missing bin/$program"
done
if [ -n "$missing" ]; then
	source=$directory/source.$$
	git worktree prune
	git worktree add --quiet --detach "$source" "$commit"
	trap 'git worktree remove --force "$source"' EXIT
	# shellcheck disable=SC2086 # several targets
	make -s --no-print-directory -C "$source" VERSION="$version" COMMIT="$commit" TREESTATE=clean $missing
	for program in $missing; do
		mv "$source/$program" "$directory/"
	done
fi
ln -sfn "releases/$version" bin/before
