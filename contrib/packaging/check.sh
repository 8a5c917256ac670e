#!/bin/bash
# Installs the files of a release in fresh roots, as root on Linux, and runs a job of two ranks in each:
#
#   contrib/packaging/check.sh build/release/1.2.3 1.2.3 DEBIAN
#
# DEBIAN is the tree of a Debian with Python, NumPy, scikit-learn, venv and rpm, which make release-ready makes. Each root
# is a copy of it that lives in an overlay and in namespaces of its own: nothing is left of it, and it has no network.
set -euo pipefail

release=$(realpath "$1") version=$2 debian=$(realpath "$3")
case $(uname -m) in
x86_64) arch=amd64 other=arm64 ;;
aarch64) arch=arm64 other=amd64 ;;
*) echo "check: error: no files of a release are for $(uname -m)" >&2 && exit 1 ;;
esac
[ "$(id -u)" = 0 ] || { echo "check: error: fresh roots need root" >&2 && exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() { echo "check: error: $*" >&2 && exit 1; }
step() { printf '== %s\n' "$*"; }

# only prints the name of the one file of the release that matches a pattern.
only() {
	local found
	found=$(cd "$release" && compgen -G "$1") || fail "no $1 in $release"
	[ "$(wc -l <<<"$found")" = 1 ] || fail "several $1 in $release"
	echo "$found"
}

# inside runs a shell script in a root. The root is a directory, or an overlay of DEBIAN if there is none of that name.
# The release is at /release, read-only.
inside() {
	local root=$scratch/$1 lower=
	[ -d "$root" ] || lower=$debian
	mkdir -p "$root"
	# shellcheck disable=SC2016 # it is for the shell in the namespaces
	unshare --mount --pid --fork --net --ipc --uts bash -euc '
		root=$1 lower=$2 release=$3 script=$4
		hostname fresh
		ip link set lo up
		if [ -n "$lower" ]; then
			mount -t tmpfs upper /mnt
			mkdir /mnt/upper /mnt/work
			mount -t overlay -o "lowerdir=$lower,upperdir=/mnt/upper,workdir=/mnt/work" fresh "$root"
		fi
		mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/release"
		mount -t proc proc "$root/proc"
		mount -t tmpfs dev "$root/dev"
		for device in null zero random urandom; do
			touch "$root/dev/$device"
			mount --bind "/dev/$device" "$root/dev/$device"
		done
		mkdir "$root/dev/shm"
		mount -t tmpfs tmp "$root/tmp"
		mount --bind "$release" "$root/release"
		mount -o remount,bind,ro "$root/release"
		export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
		unset "${!GORUN@}" "${!PYTHON@}" TMPDIR XDG_CACHE_HOME XDG_STATE_HOME
		cd /
		# A word that is not a path is a script for the root'"'"'s shell; others are a command there.
		shift 3
		if [ $# = 1 ]; then exec chroot "$root" /bin/sh -euc "$script"; else exec chroot "$root" "$@"; fi
	' inside "$root" "$lower" "$release" "${@:2}"
}

# demo is what every root with a Python must be able to do: the version, the licences, and a training with two ranks.
# shellcheck disable=SC2016 # it is for the shell in the root
demo='
	demo() { # COMMAND EXAMPLE
		[ "$($1 version)" = "gorun '$version'" ] || { $1 version; exit 1; }
		$1 version --licenses | grep -q "^github.com/hashicorp/memberlist"
		$1 -np 2 -H localhost:2 --no-tag-output python3 "$2" --epochs 3 --target 0.5 | tee /tmp/said
		grep -q "with 2 ranks" /tmp/said
	}'

step "checksums"
(cd "$release" && sha256sum --quiet -c SHA256SUMS)
[ "$(find "$release" -type f ! -name 'SHA256SUMS*' | wc -l)" = "$(wc -l <"$release/SHA256SUMS")" ] || fail "SHA256SUMS does not name all files"

step "notes, provenance and signature"
grep -q "^# gorun $version\$" "$release/$(only 'gorun-*-notes.md')" || fail "the notes are of another version"
python3 - "$release" "$(only 'gorun-*.provenance.json')" <<'PYTHON'
import json, sys
release, name = sys.argv[1:]
statement = json.load(open(f"{release}/{name}"))
assert statement["_type"] == "https://in-toto.io/Statement/v1" and statement["predicateType"] == "https://slsa.dev/provenance/v1"
of = {s["name"]: s["digest"]["sha256"] for s in statement["subject"]}
sums = dict(reversed(line.split()) for line in open(f"{release}/SHA256SUMS") if name not in line)
assert of == sums, of.items() ^ sums.items()
PYTHON
if [ -e "$release/SHA256SUMS.sig" ]; then
	ssh-keygen -Y check-novalidate -n gorun -s "$release/SHA256SUMS.sig" <"$release/SHA256SUMS" || fail "SHA256SUMS.sig does not sign SHA256SUMS"
else
	echo "not signed"
fi

step "tarball"
tarball=$(only "gorun-[0-9]*-linux-$arch.tar.gz")
inside tarball "$demo
	tar -C /opt -xzf /release/$tarball
	cd /opt/gorun-*
	demo ./gorun examples/digits_numpy.py
	./horovodrun -np 2 -H localhost:2 python3 -c 'import horovod; print(horovod.__version__)' | grep -q 0.28.1
	head -3 gorun.1 | grep -q 'TH GORUN 1'"

step "the C binding of the tarball"
tar -C "$scratch" -xzf "$release/$tarball"
c=$(echo "$scratch"/gorun-*-linux-"$arch")
cc -std=c11 -pthread -o "$scratch/example" "$c/c/example.c" "$c/c/gorun.c"
"$c/gorun" -np 4 --no-tag-output "$scratch/example" | grep -q "4 ranks, mean 1.5" || fail "the C example does not run"

step "tarballs for macOS"
for mac in amd64 arm64; do
	tar -C "$scratch" -xzf "$release/$(only "gorun-[0-9]*-darwin-$mac.tar.gz")"
	go version -m "$scratch"/gorun-*-darwin-$mac/gorun | grep -q "GOOS=darwin" || fail "the binary for macOS on $mac is for another system"
	grep -aq "GOOS=linux" "$scratch"/gorun-*-darwin-$mac/gorun || fail "the launcher for macOS on $mac has no program for hosts"
	[ "$(head -c 4 "$scratch"/gorun-*-darwin-$mac/gorun | od -An -tx1 | tr -d ' ')" = cffaedfe ] || fail "the binary for macOS on $mac is no Mach-O file"
done

# plan has gorun print the objects of a job in Kubernetes.
# shellcheck disable=SC2016 # it is for the shell in the root
plan='
	plan() { # COMMAND
		$1 --kubernetes --image i:1 --dry-run -np 4 --slots-per-host 2 -x A=hush true >/tmp/objects
		grep -q "^kind: JobSet" /tmp/objects && [ "$(grep -c hush /tmp/objects)" = 1 ]
	}'

step "tarball of gorun-kubernetes, beside gorun"
inside kubernetes-tarball "$plan
	tar -C /opt -xzf /release/$tarball
	tar -C /opt -xzf /release/$(only "gorun-kubernetes-*-linux-$arch.tar.gz")
	cp /opt/gorun-kubernetes-*/gorun-kubernetes /opt/gorun-[0-9]*/
	plan /opt/gorun-[0-9]*/gorun
	grep -q '^k8s.io/client-go ' /opt/gorun-kubernetes-*/THIRD_PARTY_LICENSES"

step "deb"
deb=$(only "gorun_*_$arch.deb")
inside deb "$demo
	dpkg -i /release/$deb
	demo gorun /usr/share/doc/gorun/examples/digits_numpy.py
	grep -q '^ExecStart=!/usr/bin/gorun worker' /usr/lib/systemd/system/gorun-worker@.service
	[ -z \"\$(find /etc/systemd -name 'gorun*')\" ] # the daemon is not enabled
	dpkg --verify gorun
	echo 'GORUN_WORKER=--slots 1' >/etc/gorun/worker.conf
	dpkg -i /release/$deb </dev/null
	grep -q 'slots 1' /etc/gorun/worker.conf # an upgrade keeps the configuration
	dpkg -P gorun
	[ -z \"\$(find / -xdev -name '*gorun*' -not -path '/proc/*' -not -path '/release*' -not -path '/var/lib/dpkg/*' -not -path '/root/.*' -not -path '/tmp/*')\" ]"
inside kubernetes-deb "$plan
	dpkg -i /release/$deb /release/$(only "gorun-kubernetes_*_$arch.deb")
	plan gorun
	dpkg --verify gorun-kubernetes
	dpkg -P gorun-kubernetes
	[ ! -e /usr/bin/gorun-kubernetes ] && [ -e /usr/bin/gorun ]"
[ "$(dpkg-deb -f "$release/$(only "gorun_*_$other.deb")" Architecture)" = "$other" ] || fail "the deb for $other has another architecture"

step "rpm"
rpm=$(only "gorun-[0-9]*.$(uname -m).rpm")
inside rpm "$demo
	[ -z \"\$(rpm -qpR /release/$rpm | grep -v '^rpmlib(')\" ] # it requires no package
	rpm -qp --qf '%{LICENSE}' /release/$rpm | grep -q 'MIT AND MPL-2.0'
	rpm -i /release/$rpm
	demo gorun /usr/share/doc/gorun/examples/digits_numpy.py
	rpm -V gorun
	rpm -i /release/$(only "gorun-kubernetes-[0-9]*.$(uname -m).rpm")
	rpm -V gorun-kubernetes
	rpm -e gorun-kubernetes
	rpm -e gorun
	[ ! -e /usr/bin/gorun ] && [ ! -e /usr/lib/systemd/system/gorun-worker@.service ]"

step "wheel"
wheel=$(only "*_$(uname -m).whl")
inside wheel "$demo
	python3 -m venv --system-site-packages /opt/fresh
	/opt/fresh/bin/pip -q install --no-index --disable-pip-version-check /release/$wheel
	tar -C /opt -xzf /release/$tarball --wildcards '*/examples'
	PATH=/opt/fresh/bin:\$PATH
	demo /opt/fresh/bin/gorun /opt/gorun-*/examples/digits_numpy.py
	horovodrun -np 2 python3 /opt/gorun-*/examples/digits_numpy.py --epochs 1 --target 0 | grep -q 'with 2 ranks'"

step "OCI image, alone in its root"
mkdir "$scratch/archive" "$scratch/image"
tar -C "$scratch/archive" -xf "$release/$(only 'gorun-*-oci.tar')"
python3 - "$scratch/archive" "$scratch/image" "$arch" >"$scratch/entrypoint" <<'PYTHON'
import json, sys, tarfile
archive, root, arch = sys.argv[1:]
def blob(descriptor):
    return f"{archive}/blobs/" + descriptor["digest"].replace(":", "/")
def read(descriptor):
    return json.load(open(blob(descriptor)))
(index,) = json.load(open(f"{archive}/index.json"))["manifests"]
(manifest,) = [m for m in read(index)["manifests"] if m["platform"] == {"architecture": arch, "os": "linux"}]
manifest = read(manifest)
for layer in manifest["layers"]:
    tarfile.open(blob(layer)).extractall(root)
print("\n".join(read(manifest["config"])["config"]["Entrypoint"]))
PYTHON
mapfile -t entrypoint <"$scratch/entrypoint"
[ "$(inside image "${entrypoint[@]}" version)" = "gorun $version" ] || fail "the image has another version"
inside image "${entrypoint[@]}" bench -np 2 --end 64K --min-time 20ms | tee "$scratch/bench"
grep -q '65536\|64 KiB\|64K' "$scratch/bench" || fail "no job ran in the image"

step "OCI image, by the library of podman and docker"
if command -v skopeo >/dev/null; then
	oci=oci-archive:$release/$(only 'gorun-*-oci.tar')
	for of in "$arch" "$other"; do
		skopeo --override-arch "$of" inspect --format '{{.Architecture}} {{.Labels}}' "$oci" | tee "$scratch/inspected"
		grep -q "^$of .*image.version:$version" "$scratch/inspected" || fail "skopeo finds no image for $of"
		skopeo --override-arch "$of" copy -q "$oci" "docker-archive:$scratch/$of.tar:gorun:check"
		tar -xOf "$scratch/$of.tar" manifest.json | grep -q 'library/gorun:check"' || fail "skopeo makes no image of docker for $of"
	done
else
	echo "not tried: apt-get install skopeo"
fi

step "bill of materials"
[ -z "${SPDX:-}" ] || "$SPDX" -i "$release/$(only 'gorun-*.spdx.json')" || fail "the bill of materials is no SPDX"
python3 - "$release/$(only 'gorun-*.spdx.json')" "$scratch"/gorun-*-darwin-arm64/gorun <<'PYTHON'
import json, subprocess, sys
bill, binary = sys.argv[1:]
named = {(p["name"], p["versionInfo"]) for p in json.load(open(bill))["packages"]}
lines = subprocess.run(["go", "version", "-m", binary], check=True, capture_output=True, text=True).stdout.splitlines()
linked = {tuple(line.split("\t")[2:4]) for line in lines if line.startswith("\tdep\t")}
assert linked and linked <= named, linked - named
PYTHON

echo "Every file of the release works in a fresh root."
