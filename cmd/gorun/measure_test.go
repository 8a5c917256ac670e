package main

import (
	"slices"
	"testing"

	"gorun/topology"
)

// TestMerged: an edge of which first the round trip and then the bandwidth was measured is one edge.
func TestMerged(t *testing.T) {
	got := merged([]topology.Edge{{From: 1, RTT: 5e-5}, {From: 2, RTT: 6e-5}},
		[]topology.Edge{{From: 2, Bandwidth: 1e9}, {From: 1, RTT: 4e-5, Bandwidth: 2e9}, {To: 2, Bandwidth: 3e9}})
	want := []topology.Edge{{From: 1, RTT: 4e-5, Bandwidth: 2e9}, {From: 2, RTT: 6e-5, Bandwidth: 1e9}, {To: 2, Bandwidth: 3e9}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, should be %+v", got, want)
	}
}
