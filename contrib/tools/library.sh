#!/bin/sh
# Builds libgorun.so, the native library of the binding, for a host of one architecture:
#
#   ZIG=DIRECTORY contrib/tools/library.sh amd64 build/libgorun-amd64.so
#
# By the zig of make zig-ready, which ZIG names, it needs glibc 2.17 and runs wherever Python finds that. By this machine's
# own compiler it is for this machine's architecture and glibc, which is enough to work on gorun. Where there is neither, it
# gets zig. A library that is up to date stays.
set -eu
cd "$(dirname "$0")/../.."

arch=$1 out=$2 zig=$ZIG
case $arch in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*) echo "library: error: unknown architecture $arch" >&2 && exit 1 ;;
esac
set --
for name in gorun tensorflow xla mpitrampoline; do
	[ ! -e "contrib/c/$name.c" ] || set -- "$@" "contrib/c/$name.c"
done
flags="-std=c11 -O2 -fPIC -shared -fvisibility=hidden -s -Wl,--build-id=none -Wl,-soname,libgorun.so"

if [ ! -e "$zig/ready" ] && command -v cc >/dev/null && [ "$(uname -sm)" = "Linux $machine" ]; then
	compiler="cc"
else
	"${MAKE:-make}" -s "$zig/ready" || {
		echo "library: error: no C compiler for $machine: apt-get install gcc, or make zig-ready where there is a network" >&2
		exit 1
	}
	compiler="$zig/bin/python -m ziglang cc -target $machine-linux-gnu.2.17"
	export ZIG_GLOBAL_CACHE_DIR="$zig/cache" ZIG_LOCAL_CACHE_DIR="$zig/cache"
fi
made="$compiler $flags $(cat contrib/c/*.h contrib/c/session/*.h "$@" | cksum)"
[ "$(uname -m)" != "$machine" ] || ln -sf "../../../build/libgorun-$arch.so" contrib/python/gorun/libgorun.so # for tests in this tree
[ ! -e "$out" ] || [ "$(cat "$out.made" 2>/dev/null)" != "$made" ] || exit 0
mkdir -p "$(dirname "$out")"
# shellcheck disable=SC2086 # lists of words
$compiler $flags -o "$out" "$@" -lpthread -ldl
echo "$made" >"$out.made"
