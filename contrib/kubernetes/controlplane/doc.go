// Package controlplane tests the manifests of contrib/kubernetes on Kubernetes itself: its API server takes them, its
// controllers and scheduler make pods of them, and its kubelet runs those by containerd and runc, as testdata/node has it. make
// test-kubernetes builds the programs from the modules that go.mod names.
package controlplane
