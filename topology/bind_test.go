package topology_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/topology"
	"gorun/topology/probe/probetest"
)

// TestPlace decides for machines of package probe's fixtures.
func TestPlace(t *testing.T) {
	none := func(n int) []string { return make([]string, n) }
	for _, tc := range []struct {
		machine, to string
		devices     []string
		want        string // of each rank its CPUs and its memory
		engine      string
		spare       string // of each rank, for what it starts
		why         string // of the last rank
	}{
		// Two sockets of 8 cores with 2 threads each, the NIC on node 1. CPU n and n+16 are one core.
		{"baremetal", "numa", none(2), "[8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31]@[1] [0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23]@[0]", "[8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31]", "[] []", "by its share of the cores"},
		{"baremetal", "core", none(1), "[15 31]@[1]", "[8 9 10 11 24 25 26 27]", "[12 13 14 28 29 30]", "beside the NIC"},
		{"baremetal", "core:4", none(3), "[8 9 10 11 24 25 26 27]@[1] [12 13 14 15 28 29 30 31]@[1] [0 1 2 3 16 17 18 19]@[0]", "[8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31]", "[4 5 6 7 20 21 22 23] [4 5 6 7 20 21 22 23] [4 5 6 7 20 21 22 23]", "by its share of the cores"},
		{"baremetal", "hwthread", none(2), "[31]@[1] [0]@[0]", "[8 9 10 11 24 25 26 27]", "[12 13 14 15 28 29 30] [1 2 3 4 5 6 7 16 17 18 19 20 21 22 23]", "by its share of the cores"},
		{"baremetal", "core", []string{"1", "0"}, "[15 31]@[1] [0 16]@[0]", "[8 9 10 11 24 25 26 27]", "[12 13 14 28 29 30] [1 2 3 4 5 6 7 17 18 19 20 21 22 23]", "beside GPU 0"},
		{"baremetal", "numa", []string{"no such GPU"}, "[8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31]@[1]", "[8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31]", "[]", "beside the NIC"},
		{"baremetal", "none", none(2), "", "[]", "", ""},
		// A flat VM: the NIC is on no node, but there is only one.
		{"vsphere", "core:2", none(2), "[0 1]@[] [2 3]@[]", "[4 5]", "[6 7] [6 7]", "by its share of the cores"},
		{"vsphere", "numa", none(2), "[0 1 2 3 4 5 6 7]@[] [0 1 2 3 4 5 6 7]@[]", "[]", "[] []", "by its share of the cores"},
		// A container with four CPUs of a machine.
		{"container", "core", none(2), "[4]@[] [5]@[]", "[12]", "[13] [13]", "by its share of the cores"},
	} {
		h := probetest.Probe(t, filepath.Join("probe", "testdata", tc.machine+".txtar"))
		bind, err := topology.ParseBind(tc.to)
		must.Do(t, err)
		bound, err := bind.Place(h, tc.devices)
		if err != nil {
			t.Errorf("%s by %s: %v", tc.machine, tc.to, err)
			continue
		}
		var got []string
		why := ""
		for _, b := range bound {
			got, why = append(got, fmt.Sprintf("%v@%v", b.CPUs, b.Nodes)), b.Why
		}
		if got := strings.Join(got, " "); got != tc.want || why != tc.why {
			t.Errorf("%s, %d ranks by %s: %s, %s; should be %s, %s", tc.machine, len(tc.devices), tc.to, got, why, tc.want, tc.why)
		}
		if engine := fmt.Sprint(bind.Beside(h, bound)); engine != tc.engine {
			t.Errorf("%s, %d ranks by %s: engine on %s, should be %s", tc.machine, len(tc.devices), tc.to, engine, tc.engine)
		}
		if spare := strings.Trim(fmt.Sprint(bind.Spare(h, bound, bind.Beside(h, bound))), "[]"); spare != strings.Trim(tc.spare, "[]") {
			t.Errorf("%s, %d ranks by %s: spare are %s, should be %s", tc.machine, len(tc.devices), tc.to, spare, tc.spare)
		}
	}
}

// TestPlaceAll: whatever the machine, ranks get CPUs that may be used, and cores to themselves.
func TestPlaceAll(t *testing.T) {
	archives, err := filepath.Glob(filepath.Join("probe", "testdata", "*.txtar"))
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	for _, archive := range archives {
		h := probetest.Probe(t, archive)
		for ranks := 1; ranks <= 9; ranks++ {
			devices := make([]string, ranks)
			for i := range devices {
				devices[i] = fmt.Sprint(i)
			}
			for _, to := range []string{"hwthread", "core", "core:2", "numa", "socket", "core:overload-allowed"} {
				bind, err := topology.ParseBind(to)
				must.Do(t, err)
				bound, err := bind.Place(h, devices)
				if err != nil {
					if !strings.Contains(err.Error(), " has ") || to == "numa" || to == "socket" || bind.Overload {
						t.Errorf("%s, %d ranks by %s: %v", archive, ranks, to, err)
					}
					continue
				}
				engine := bind.Beside(h, bound)
				for rank, cpus := range bind.Spare(h, bound, engine) {
					for _, cpu := range cpus {
						if slices.Contains(engine, cpu) || slices.ContainsFunc(bound, func(b topology.Binding) bool { return slices.Contains(b.CPUs, cpu) }) || !slices.Contains(h.Usable, cpu) {
							t.Errorf("%s, %d ranks by %s: CPU %d is not to spare for rank %d", archive, ranks, to, cpu, rank)
						}
					}
				}
				owner := map[int]int{}
				for rank, b := range bound {
					if len(b.CPUs) == 0 || !slices.IsSorted(b.CPUs) || b.Why == "" {
						t.Errorf("%s, %d ranks by %s: %+v", archive, ranks, to, b)
					}
					for _, cpu := range b.CPUs {
						other, taken := owner[cpu]
						if taken && (bind.To == topology.BindCore || bind.To == topology.BindThread) && !bind.Overload {
							t.Errorf("%s, %d ranks by %s: CPU %d has ranks %d and %d", archive, ranks, to, cpu, other, rank)
						}
						if owner[cpu] = rank; !slices.Contains(h.Usable, cpu) {
							t.Errorf("%s, %d ranks by %s: CPU %d may not be used", archive, ranks, to, cpu)
						}
					}
				}
			}
		}
	}
}

// With NICs that the user chose on both nodes, the engine runs on both.
func TestBesideChosenNICs(t *testing.T) {
	h := topology.Host{
		Nodes: []topology.Node{{ID: 0, CPUs: []int{0, 1, 2, 3}}, {ID: 1, CPUs: []int{4, 5, 6, 7}}, {ID: 2, CPUs: []int{8, 9}}},
		NICs:  []topology.NIC{{Name: "a", Node: 0, Up: true, Speed: 10000}, {Name: "b", Node: 1, Up: true, Speed: 25000}, {Name: "c", Node: 2, Up: true, Speed: 40000}},
	}
	for _, tc := range []struct {
		nics []string
		want string
	}{{nil, "[8]"}, {[]string{"a"}, "[0 1]"}, {[]string{"a", "b"}, "[0 1 4 5]"}, {[]string{"none"}, "[]"}} {
		bind := topology.Bind{To: topology.BindCore, NICs: tc.nics}
		bound, err := bind.Place(h, make([]string, 1))
		must.Do(t, err)
		if got := fmt.Sprint(bind.Beside(h, bound)); got != tc.want {
			t.Errorf("data over %v: the engine runs on %s, should on %s", tc.nics, got, tc.want)
		}
	}
}

func TestPlaceErrors(t *testing.T) {
	for text, want := range map[string]string{"board": "not none", "core:0": "unknown modifier", "numa:2": "unknown modifier", "core:x": "unknown modifier"} {
		if _, err := topology.ParseBind(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, should be %q", text, err, want)
		}
	}
	four := topology.Host{Usable: []int{0, 1, 2, 3}}
	if _, err := (topology.Bind{To: topology.BindCore, Each: 3}).Place(four, make([]string, 2)); err == nil ||
		err.Error() != "bind 2 ranks to 3 cores each: the host has 4" {
		t.Error(err)
	}
	if _, err := (topology.Bind{To: topology.BindNUMA}).Place(topology.Host{}, make([]string, 1)); err == nil {
		t.Error("a host without CPUs")
	}
	if bound, err := (topology.Bind{To: topology.BindCore}).Place(four, nil); err != nil || bound != nil {
		t.Errorf("no ranks: %v, %v", bound, err)
	}
}

// TestAlong: the streams of each network run on those CPUs of the engine that are beside its NIC.
func TestAlong(t *testing.T) {
	h := topology.Host{
		Nodes: []topology.Node{{ID: 0, CPUs: []int{0, 1, 2, 3}}, {ID: 1, CPUs: []int{4, 5, 6, 7}}},
		NICs: []topology.NIC{{Name: "a", Up: true, Node: 0, Addrs: []string{"10.0.0.1/24"}}, {Name: "b", Up: true, Node: 1, Addrs: []string{"10.1.0.1/24"}},
			{Name: "c", Up: true, Node: -1, Addrs: []string{"10.2.0.1/24"}}},
		Usable: []int{0, 1, 2, 3, 4, 5, 6, 7},
	}
	b := topology.Bind{To: topology.BindCore, NICs: []string{"a", "b", "c"}}
	bound, err := b.Place(h, make([]string, 4))
	must.Do(t, err)
	engine := b.Beside(h, bound)
	rails := topology.Rails([]topology.Host{h})
	along := b.Along(h, rails, engine)
	if len(along) != 3 || len(along[0]) == 0 || len(along[1]) == 0 || len(along[2]) != 0 {
		t.Fatalf("engine on %v, streams on %v", engine, along)
	}
	for rail, cpus := range along {
		for _, cpu := range cpus {
			if !slices.Contains(engine, cpu) || cpu/4 != rail {
				t.Errorf("streams in %s on CPU %d; the engine has %v", rails[rail], cpu, engine)
			}
		}
	}
	// Two ranks that have a node each leave the engine nothing of its own, and NICs on both nodes let it run anywhere.
	b.To = topology.BindNUMA
	if bound, err = b.Place(h, make([]string, 2)); err != nil {
		t.Fatal(err)
	}
	engine = b.Beside(h, bound)
	along = b.Along(h, rails, engine)
	if len(engine) != 0 || len(along) != 3 || !slices.Equal(along[0], h.Nodes[0].CPUs) || !slices.Equal(along[1], h.Nodes[1].CPUs) || len(along[2]) != 0 {
		t.Errorf("engine on %v, streams on %v", engine, along)
	}
	h.NICs[1].Node = 0
	if along := b.Along(h, rails, engine); along != nil {
		t.Errorf("NICs on one node: %v", along)
	}
}

// FuzzBind: what ParseBind takes can be placed on a machine, or is refused with a reason.
func FuzzBind(f *testing.F) {
	for _, seed := range []string{"", "none", "core:4", "hwthread:overload-allowed", "package:if-supported,no-overload", "core:0", "numa:2", "core:4,4,-1", ":", "core:99999999999999999999"} {
		f.Add(seed, 3)
	}
	h := probetest.Probe(f, filepath.Join("probe", "testdata", "baremetal.txtar"))
	f.Fuzz(func(t *testing.T, text string, ranks int) {
		b, err := topology.ParseBind(text)
		if err != nil {
			return
		}
		ranks = max(1, min(ranks, 64))
		bound, err := b.Place(h, make([]string, ranks))
		if err == nil && bound != nil && len(bound) != ranks {
			t.Fatalf("%d of %d ranks", len(bound), ranks)
		}
		for _, rank := range bound {
			if len(rank.CPUs) == 0 {
				t.Fatalf("a rank without CPUs by %q", text)
			}
		}
	})
}
