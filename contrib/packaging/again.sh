#!/bin/bash
# Makes a release a second time and compares it with the first, byte by byte:
#
#   contrib/packaging/again.sh build/release/1.2.3 1.2.3 REVISION SECONDS
#
# The copy of the source has another path, the build cache is empty, and there is no network: modules come from the
# module cache alone.
set -euo pipefail
cd "$(dirname "$0")/../.."

first=$(realpath "$1") version=$2 revision=$3 seconds=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/a source" "$scratch/cache"
git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$scratch/a source"
modules=$(go env GOMODCACHE)
unshare --net env -C "$scratch/a source" GOCACHE="$scratch/cache" GOMODCACHE="$modules" GOPROXY=off GOFLAGS= \
	make release RELEASE_KEY= VERSION="$version" REVISION="$revision" SOURCE_DATE_EPOCH="$seconds" >"$scratch/log" 2>&1 ||
	{ tail -20 "$scratch/log" && echo "again: error: the second release could not be made" >&2 && exit 1; }
if ! diff "$first/SHA256SUMS" "$scratch/a source/build/release/$version/SHA256SUMS"; then
	echo "again: error: these files differ between two builds of the same source" >&2
	exit 1
fi
echo "Two builds gave the same $(wc -l <"$first/SHA256SUMS") files."
