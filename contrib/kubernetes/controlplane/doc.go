// Package controlplane tests the manifests of contrib/kubernetes on Kubernetes itself: its API server takes them, its
// controllers and scheduler make pods of them, and those run in the kubelet of contrib/kubernetes/kubelet. make
// test-kubernetes builds the programs from the modules that go.mod names.
package controlplane
