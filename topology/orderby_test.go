package topology_test

import (
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/topology"
)

func TestOrderBy(t *testing.T) {
	hosts := []topology.Host{host("a", "", "r1", ""), host("b", "", "r2", ""), host("c", "", "r1", ""), host("d", "", "r2", "")}
	edges := []topology.Edge{{From: 0, To: 1, Bandwidth: gbit}, {From: 1, To: 2, Bandwidth: gbit}, {From: 2, To: 3, Bandwidth: gbit},
		{From: 3, To: 0, Bandwidth: gbit}, {From: 0, To: 2, Bandwidth: gbit / 9}, {From: 1, To: 3, Bandwidth: gbit / 9}}
	for by, want := range map[string][]int{"host": {0, 1, 2, 3}, "topology": {0, 1, 3, 2}, "measured": {0, 1, 2, 3}, "": {0, 1, 2, 3}} {
		parsed, err := topology.ParseBy(by)
		must.Do(t, err)
		ring := topology.OrderBy(t.Context(), parsed, hosts, edges)
		if !slices.Equal(ring.Order, want) || len(ring.Why) != len(want) {
			t.Errorf("by %q: %+v, should be %v", by, ring, want)
		}
	}
	// Measured values are shown also for a ring that does not go by them.
	ring := topology.OrderBy(t.Context(), topology.ByTopology, hosts, edges)
	if want := "same rack r2, 111 Mbit/s measured, the bottleneck, by labels and NICs"; ring.Why[1] != want || ring.Why[0] != "from rack r1 to r2, 1 Gbit/s measured, by labels and NICs" {
		t.Errorf("reasons %q, the second should be %q", ring.Why, want)
	}
	// So is that a ring does not go by it, or by anything.
	for by, want := range map[topology.By]string{topology.ByHost: "1 Gbit/s measured, order of the host list", topology.ByMeasured: "1 Gbit/s measured"} {
		if why := topology.OrderBy(t.Context(), by, hosts, edges).Why[0]; !strings.HasSuffix(why, want) {
			t.Errorf("by %s: %q, should end with %q", by, why, want)
		}
	}
	bare := []topology.Host{{}, {}, {}}
	if why := topology.OrderBy(t.Context(), topology.ByHost, bare, nil).Why[0]; why != "nothing known, order of the host list" {
		t.Errorf("of nothing: %q", why)
	}
	if _, err := topology.ParseBy("rank"); err == nil {
		t.Error("no error")
	}
	for _, few := range [][]topology.Host{nil, hosts[:1]} {
		if ring := topology.OrderBy(t.Context(), topology.ByHost, few, nil); len(ring.Order) != len(few) || ring.Why != nil {
			t.Errorf("%d hosts: %+v", len(few), ring)
		}
	}
}
