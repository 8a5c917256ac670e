// Package kubernetes has the manifests of this directory.
package kubernetes

import _ "embed"

// JobSet is jobset.yaml, which gorun-kubernetes fills in for a command line.
//
//go:embed jobset.yaml
var JobSet []byte
