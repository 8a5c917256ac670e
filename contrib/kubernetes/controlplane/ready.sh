#!/bin/sh
# Builds etcd and the parts of Kubernetes that make test-kubernetes starts, and gets uv, those that DIR lacks: ready.sh DIR
set -eu
cd "$(dirname "$0")"
mkdir -p "$1"

build() { # NAME PACKAGE
	[ -e "$to/$1" ] || go build -ldflags='-s -w' -o "$to/$1" "$2"
}

to=$1
[ -e "$to/uv" ] || python3 -m pip install --quiet --no-deps --require-hashes --target "$to/uv" -r ../../../launcher/pyenv/uv.txt
build etcd go.etcd.io/etcd/server/v3
for part in kube-apiserver kube-controller-manager kube-scheduler kubelet; do build $part k8s.io/kubernetes/cmd/$part; done
# Each of these is built as its own module pins it; apply_test.go names the same versions.
while read -r name module package; do
	cd "$(go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')"
	build "$name" "$package"
done <<END
jobset sigs.k8s.io/jobset@v0.8.0 .
jobset-0.10.1 sigs.k8s.io/jobset@v0.10.1 .
mpi-operator github.com/kubeflow/mpi-operator@v0.6.0 ./cmd/mpi-operator
trainer-controller-manager github.com/kubeflow/trainer/v2@v2.1.0 ./cmd/trainer-controller-manager
END
touch "$to/ready"
