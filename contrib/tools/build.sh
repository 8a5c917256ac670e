#!/bin/sh
# Builds gorun for a system into a file: VERSION=1.2.3 ZIG=DIR contrib/tools/build.sh linux amd64 bin/gorun
# The program for hosts goes where cmd/gorun/program_embedded.go embeds it. A launcher for macOS embeds what was built last.
set -eu
cd "$(dirname "$0")/../.."
os=$1 arch=$2 file=$3

compile() { # OUT PACKAGE TAGS FLAGS
	echo "$1 for $os on $arch"
	GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=false -tags "urfave_cli_no_docs,nethttpomithttp2,gorund$3" \
		-ldflags "-s -w -X main.version=$VERSION $4" -o "$1" "$2"
}

pack() { # LIBRARY OUT FLAG… PROGRAM
	library=$1 out=$2
	shift 2
	GOFLAGS='' go run ./contrib/tools/pyzip -version "$VERSION" -library "$library" -o "$out" "$@" contrib/python gorun shim
}

if [ "$os" = darwin ]; then
	compile build/gorun ./cmd/gorun "" "-X main.hostArch=amd64"
	pack build/libgorun-none.so "$file" build/gorun
	exit
fi
library=build/libgorun-$arch.so
contrib/tools/library.sh "$arch" "$library"
compile build/gorund ./cmd/gorund "" ""
pack "$library" cmd/gorun/gorund build/gorund
compile build/gorund-rdma ./cmd/gorund ,rdma ""
compile build/gorun ./cmd/gorun "" ""
pack "$library" "$file" -program build/gorund-rdma build/gorun
