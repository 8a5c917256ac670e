// Package controlplane applies the manifests of contrib/kubernetes to the API server of Kubernetes itself, which make
// test-kubernetes builds from the modules that go.mod names.
package controlplane
