package network

import (
	"slices"
	"testing"

	"gorun/rendezvous/wire"
)

// TestBusiestLinks: of many links the busiest are reported, and links that carry about the same do not take turns.
func TestBusiestLinks(t *testing.T) {
	peers := func(reported []int, sent ...uint64) (found []int) {
		var all []wire.LinkUsage
		for peer, bytes := range sent {
			all = append(all, wire.LinkUsage{Peer: peer, Links: wire.Links{SentBytes: bytes}})
		}
		before := map[int]bool{}
		for _, peer := range reported {
			before[peer] = true
		}
		for _, l := range busiest(all, before, 2) {
			found = append(found, l.Peer)
		}
		slices.Sort(found)
		return found
	}
	for _, tt := range []struct {
		reported []int
		sent     []uint64
		want     []int
	}{
		{nil, []uint64{10}, []int{0}},
		{nil, []uint64{10, 30, 20}, []int{1, 2}},
		{[]int{1, 2}, []uint64{39, 30, 20}, []int{1, 2}},
		{[]int{1, 2}, []uint64{41, 30, 20}, []int{0, 1}},
	} {
		if got := peers(tt.reported, tt.sent...); !slices.Equal(got, tt.want) {
			t.Errorf("after %v, of links that sent %v: %v, want %v", tt.reported, tt.sent, got, tt.want)
		}
	}
}
