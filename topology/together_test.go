package topology_test

import (
	"slices"
	"strings"
	"testing"

	"gorun/topology"
)

// near makes edges between all hosts: those of one machine are near each other.
func near(machines []int, inside, across, fast, slow float64) []topology.Edge {
	var edges []topology.Edge
	for i, a := range machines {
		for j, b := range machines {
			e := topology.Edge{From: i, To: j, RTT: across + float64(i+j)*1e-6, Bandwidth: slow}
			if a == b {
				e.RTT, e.Bandwidth = inside+float64(i+j)*5e-7, fast
			}
			if i != j {
				edges = append(edges, e)
			}
		}
	}
	return edges
}

func TestTogether(t *testing.T) {
	vm := func(n int) (hosts []topology.Host) {
		for i := range n {
			hosts = append(hosts, topology.Host{Name: string(rune('a' + i)), Platform: "vmware"})
		}
		return hosts
	}
	for _, tc := range []struct {
		name  string
		hosts []topology.Host
		edges []topology.Edge
		want  string // hosts and confidence of each site
	}{
		{"two machines", vm(4), near([]int{0, 1, 0, 1}, 20e-6, 70e-6, 3*gbit, gbit), "a,c 0.9; b,d 0.9"},
		{"no faster", vm(4), near([]int{0, 1, 0, 1}, 20e-6, 70e-6, gbit, gbit), "a,c 0.6; b,d 0.6"},
		{"one alone", vm(3), near([]int{0, 1, 0}, 20e-6, 70e-6, 0, 0), "a,c 0.6"},
		{"all alike", vm(4), near([]int{0, 0, 0, 0}, 20e-6, 70e-6, gbit, gbit), ""},
		{"all apart", vm(4), near([]int{0, 1, 2, 3}, 20e-6, 70e-6, gbit, gbit), ""},
		{"too close to tell", vm(4), near([]int{0, 1, 0, 1}, 50e-6, 70e-6, gbit, gbit), ""},
		{"nothing measured", vm(4), nil, ""},
		{"two hosts", vm(2), near([]int{0, 0}, 20e-6, 70e-6, gbit, gbit), ""},
		{"none", nil, nil, ""},
	} {
		if got := sites(topology.Together(tc.hosts, tc.edges)); got != tc.want {
			t.Errorf("%s: %q, should be %q", tc.name, got, tc.want)
		}
	}
	// A chain in which a is near b and b near c, but a not near c, is no group.
	edges := near([]int{0, 0, 1, 2}, 20e-6, 70e-6, gbit, gbit)
	for i, e := range edges {
		if e.From+e.To == 3 && e.From*e.To == 2 {
			edges[i].RTT = 20e-6
		}
	}
	if got := sites(topology.Together(vm(4), edges)); got != "" {
		t.Errorf("a chain: %q", got)
	}
	// Hosts of different versions are not one host.
	updated := vm(4)
	for i, release := range []string{"8.0.2", "8.0.3", "8.0.3", ""} {
		updated[i].Labels = map[string]string{"esxi-release": release}
	}
	if got := sites(topology.Together(updated, near([]int{0, 1, 0, 1}, 20e-6, 70e-6, gbit, gbit))); got != "b,d 0.6" {
		t.Errorf("hosts of two versions: %q", got)
	}
	// Nor is what has other processors.
	for i, hardware := range []string{"cores=64", "cores=64", "cores=32", "cores=64"} {
		updated[i].Labels = map[string]string{"esxi-hardware": hardware}
	}
	if got := sites(topology.Together(updated, near([]int{0, 1, 0, 1}, 20e-6, 70e-6, gbit, gbit))); got != "b,d 0.6" {
		t.Errorf("hosts with different processors: %q", got)
	}
	// Machines are not on machines, and a label is not to be doubted.
	metal := vm(4)
	metal[2].Platform = "baremetal"
	metal[0].Labels, metal[1].Labels = map[string]string{"esxi": "e1"}, map[string]string{"esxi": "e1"}
	found := topology.Together(metal, near([]int{0, 1, 0, 1}, 20e-6, 70e-6, gbit, gbit))
	if got := sites(found); got != "a,b 1" || !found[0].Labelled || !strings.Contains(found[0].String(), "a, b are on one ESXi host: its label is e1") {
		t.Errorf("%q: %v", got, found)
	}
}

// TestSitesNameTheirSource: a site that an administrator supplied names its source, also if that is not the same for
// all.
func TestSitesNameTheirSource(t *testing.T) {
	var hosts []topology.Host
	for i, source := range []string{"guestinfo", "topology file", "guestinfo", ""} {
		h := topology.Host{Name: string(rune('a' + i)), Labels: map[string]string{"esxi": "e1"}}
		if source != "" {
			h.LabelSources = map[string]string{"esxi": source}
		}
		hosts = append(hosts, h)
	}
	want := "a, b, c, d are on one ESXi host: its label is e1, by guestinfo, by topology file"
	if found := topology.Together(hosts, nil); len(found) != 1 || found[0].String() != want || found[0].Confidence != 1 {
		t.Errorf("%v, should be %s", found, want)
	}
	if why := topology.Together([]topology.Host{hosts[3], hosts[3]}, nil)[0].Why; why != "its label is e1" {
		t.Errorf("of nobody: %s", why)
	}
	for i, want := range []string{"same esxi e1 (from guestinfo and topology file, 100 %)", "same esxi e1 (from topology file and guestinfo, 100 %)",
		"same esxi e1 (from guestinfo, 100 %)", "same esxi e1 (from guestinfo, 100 %)"} {
		if why := topology.OrderBy(t.Context(), topology.ByHost, hosts, nil).Why[i]; why != want+", order of the host list" {
			t.Errorf("edge %d: %s, should be %s", i, why, want)
		}
	}
}

func sites(found []topology.Site) string {
	var all []string
	for _, s := range found {
		confidence := map[float64]string{1: "1", 0.9: "0.9", 0.6: "0.6"}[s.Confidence]
		all = append(all, strings.Join(slices.Clone(s.Hosts), ",")+" "+confidence)
	}
	return strings.Join(all, "; ")
}
