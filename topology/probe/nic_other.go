//go:build !linux

package probe

import "gorun/topology"

func liveNICs(t tree) []topology.NIC { return treeNICs(t) }
