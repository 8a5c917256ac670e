package topology_test

import (
	"slices"
	"strings"
	"testing"

	"gorun/topology"
)

func TestLegs(t *testing.T) {
	hosts := []topology.Host{{Name: "a", NICs: nic(10000)}, {Name: "b", NICs: nic(25000)}, {Name: "c", NICs: nic(25000)}}
	edges := []topology.Edge{{From: 0, To: 1, Bandwidth: 5 * gbit, RTT: 50e-6}}
	ring := topology.Order(hosts, edges)
	got := ring.Legs(hosts, edges)
	want := []topology.Leg{
		{From: 0, To: 1, Bandwidth: 5 * gbit, Source: "measured", RTT: 50e-6, Slowest: true, Why: "5 Gbit/s measured, 50 µs, the bottleneck"},
		{From: 1, To: 2, Bandwidth: 25 * gbit, Source: "nic", Why: "25 Gbit/s by NIC"},
		{From: 2, To: 0, Bandwidth: 10 * gbit, Source: "nic", Why: "10 Gbit/s by NIC"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("legs\n%+v\nshould be\n%+v", got, want)
	}
	told := []topology.Host{{NICs: []topology.NIC{{Driver: "vmxnet3", Speed: 25000, Given: true, Up: true}}}, {NICs: []topology.NIC{{Driver: "vmxnet3", Speed: 40000, Up: true}}}}
	for _, leg := range topology.Order(told, nil).Legs(told, nil) {
		if leg.Why != "25 Gbit/s by topology file" || leg.Source != "file" {
			t.Errorf("an administrator told the speed, but %+v", leg)
		}
	}
	for name, hosts := range map[string][]topology.Host{"no hosts": nil, "one": hosts[:1]} {
		if legs := topology.Order(hosts, nil).Legs(hosts, nil); legs != nil {
			t.Errorf("%s: %+v", name, legs)
		}
	}
	for slow, stands := range map[float64]bool{4.5: false, 3: true} { // of equal veths, and of one that is not
		edges := []topology.Edge{{From: 0, To: 1, Bandwidth: slow * gbit}, {From: 1, To: 2, Bandwidth: 5.4 * gbit}, {From: 2, To: 0, Bandwidth: 5 * gbit},
			{From: 1, To: 0, Bandwidth: slow * gbit}, {From: 2, To: 1, Bandwidth: 5.4 * gbit}, {From: 0, To: 2, Bandwidth: 5 * gbit}}
		for _, leg := range topology.Order(hosts, edges).Legs(hosts, edges) {
			limits := stands && leg.Bandwidth == slow*gbit
			if leg.Slowest != limits || strings.Contains(leg.Why, "the bottleneck") != limits {
				t.Errorf("with an edge of %v Gbit/s: %+v", slow, leg)
			}
		}
	}
	alike := []topology.Host{{Name: "a"}, {Name: "b"}}
	for _, leg := range topology.Order(alike, nil).Legs(alike, nil) {
		if leg.Slowest || leg.Bandwidth != 0 || leg.Source != "unknown" {
			t.Errorf("nothing is known, but %+v", leg)
		}
	}
}
