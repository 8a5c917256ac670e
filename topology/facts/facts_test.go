package facts_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/topology"
	"gorun/topology/facts"
)

const good = `# two hosts
hosts:
  host1:
    esxi: esx-07
    rack: r1
    nics:
      ens192: {node: 0, speed_mbit: 25000}
    gpus:
      0: {node: 1}
  user@host2: {esxi: "8", zone: z1}
  host3:
edges:
  - {from: host1, to: host2, mbit: 8000, rtt_us: 55}
  - {from: host1, to: elsewhere, mbit: 8}
`

func TestOverride(t *testing.T) {
	f, err := facts.Parse([]byte(good))
	must.Do(t, err)
	old := map[string]string{"rack": "r0", "owner": "x"}
	hosts := []topology.Host{
		{Name: "host1", Labels: old, NICs: []topology.NIC{{Name: "ens192", Node: -1, Speed: 10000}}, GPUs: []topology.GPU{{Node: -1}}},
		{Name: "host2"}, {Name: "root@host3"}, {Name: "host4"}}
	for i := range hosts {
		must.Do(t, f.Override(&hosts[i]))
	}
	want := []topology.Host{
		{Name: "host1", Labels: map[string]string{"esxi": "esx-07", "rack": "r1", "owner": "x"}, LabelSources: map[string]string{"esxi": "topology file", "rack": "topology file"},
			NICs: []topology.NIC{{Name: "ens192", Node: 0, Speed: 25000, Given: true}}, GPUs: []topology.GPU{{Node: 1}}},
		{Name: "host2", Labels: map[string]string{"esxi": "8", "zone": "z1"}, LabelSources: map[string]string{"esxi": "topology file", "zone": "topology file"}}, {Name: "root@host3"}, {Name: "host4"}}
	if !reflect.DeepEqual(hosts, want) {
		t.Errorf("%+v\nshould be\n%+v", hosts, want)
	}
	if old["rack"] != "r0" {
		t.Error("labels that others may hold were changed")
	}
	edges := f.Edges([]topology.Host{{Name: "host3"}, {Name: "me@host2"}, {Name: "host1"}})
	if want := []topology.Edge{{From: 2, To: 1, Bandwidth: 1e9, RTT: 55e-6}}; !reflect.DeepEqual(edges, want) {
		t.Errorf("edges %+v, should be %+v", edges, want)
	}
	for host, want := range map[string]string{"nics: {eth7: {node: 0}}": "line 2: a has no NIC eth7", "gpus: {3: {node: 0}}": "line 2: a has no GPU 3",
		"nics: {e: {node: 7}}": "line 2: a has no NUMA node 7"} {
		f, err := facts.Parse([]byte("hosts:\n  a: {" + host + "}\n"))
		must.Do(t, err)
		if err := f.Override(&topology.Host{Name: "a", NICs: []topology.NIC{{Name: "e"}}, Nodes: []topology.Node{{ID: 0}}}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, should be %s", host, err, want)
		}
	}
}

// TestSessions: of a machine whose session is another one than when the file was written, labels and edges do not
// count; what its devices are like still does.
func TestSessions(t *testing.T) {
	hosts := []topology.Host{{Name: "a", Session: "0x1", Labels: map[string]string{"esxi": "e1", "rack": "r1"}}, {Name: "b", Session: "0x2"}, {Name: "c"}}
	edges := []topology.Edge{{From: 0, To: 1, Bandwidth: 1e6}, {From: 1, To: 2, Bandwidth: 1e6}, {From: 0, To: 2, Bandwidth: 1e6}}
	f, err := facts.Parse(facts.Write(hosts, edges))
	must.Do(t, err)
	for session, moved := range map[string]bool{"0x1": false, "": false, "0x7": true} { // unknown is not another one
		now := []topology.Host{{Name: "a", Session: session}, hosts[1], hosts[2]}
		must.Do(t, f.Override(&now[0]))
		want := edges
		if moved {
			want = edges[1:2]
		}
		if got := f.Edges(now); f.Moved(now[0]) != moved || (len(now[0].Labels) == 0) != moved || !reflect.DeepEqual(got, want) {
			t.Errorf("session %q: moved %v, labels %v, edges %v", session, f.Moved(now[0]), now[0].Labels, got)
		}
	}
	f, err = facts.Parse([]byte("hosts: {a: {session: '0x1', nics: {e0: {node: 1}}}}"))
	must.Do(t, err)
	h := topology.Host{Name: "a", Session: "0x2", Nodes: []topology.Node{{ID: 1}}, NICs: []topology.NIC{{Name: "e0", Node: -1}}, Labels: map[string]string{"esxi": "told by itself"}}
	if err := f.Override(&h); err != nil || h.NICs[0].Node != 1 || h.Labels["esxi"] != "told by itself" {
		t.Errorf("%v, %+v", err, h)
	}
}

// TestApply: of a host that has lost a device, all else in the file still holds.
func TestApply(t *testing.T) {
	f, err := facts.Parse([]byte("hosts:\n  a:\n    rack: r1\n    nics:\n      e0: {node: 0}\n      e1: {node: 0, speed_mbit: 25000}\n      e2: {node: 7, speed_mbit: 100}\n    gpus:\n      0: {node: 0}\n"))
	must.Do(t, err)
	h := topology.Host{Name: "a", Nodes: []topology.Node{{ID: 0}}, NICs: []topology.NIC{{Name: "e1", Node: -1}, {Name: "e2", Node: -1}}}
	var said []string
	for _, err := range f.Apply(&h) {
		said = append(said, err.Error())
	}
	if want := []string{"line 5: a has no NIC e0", "line 7: a has no NUMA node 7", "line 9: a has no GPU 0"}; !slices.Equal(said, want) {
		t.Errorf("missing: %q, should be %q", said, want)
	}
	want := topology.Host{Name: "a", Nodes: []topology.Node{{ID: 0}}, Labels: map[string]string{"rack": "r1"}, LabelSources: map[string]string{"rack": "topology file"},
		NICs: []topology.NIC{{Name: "e1", Node: 0, Speed: 25000, Given: true}, {Name: "e2", Node: -1, Speed: 100, Given: true}}}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("%+v\nshould be\n%+v", h, want)
	}
	if s := f.Unlisted([]string{"b", "root@a"}); len(s) != 0 {
		t.Errorf("unlisted %v", s)
	}
	if s := f.Unlisted([]string{"b"}); !slices.Equal(s, []string{"a"}) {
		t.Errorf("unlisted %v", s)
	}
}

// TestUnlistedOfEdges: a misspelt host at the end of an edge is one, too, once.
func TestUnlistedOfEdges(t *testing.T) {
	f, err := facts.Parse([]byte("hosts:\n  a: {}\nedges:\n- {from: a, to: b, mbit: 1}\n- {from: root@c, to: a, mbit: 1}\n- {from: a, to: c, mbit: 1}\n"))
	must.Do(t, err)
	if s := f.Unlisted([]string{"a"}); !slices.Equal(s, []string{"b", "c"}) {
		t.Errorf("unlisted %v", s)
	}
	if s := f.Unlisted([]string{"a", "b", "root@c"}); len(s) != 0 {
		t.Errorf("unlisted %v", s)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		"# nothing\n":                           "",
		"hosts:\nedges: []":                     "",
		"hosts: 3":                              "line 1: hosts is not a mapping",
		"hots:":                                 `line 1: the file has no "hots"`,
		"hosts:\n  a: {rak: 1}":                 `line 2: a host has no "rak"`,
		"hosts:\n  a: {}\n  a: {}":              `line 3: hosts names "a" twice`,
		"hosts:\n  a:\n    rack: [1]":           "line 3: not a name",
		"hosts:\n  a:\n    rack: \"x\\x1b[2J\"": "line 3: character",
		"hosts:\n  a:\n    nics: {e: {node: -2}}":   `line 3: "-2" is not a number from -1 to 1023`,
		"hosts:\n  a:\n    nics: {e: {speed: 1}}":   `line 3: a device has no "speed"`,
		"hosts:\n  a:\n    gpus: {x: {node: 1}}":    `line 3: "x" is not a number`,
		"hosts:\n  a: {}\n  root@a: {}":             `line 3: hosts names "a" twice, by different users`,
		"hosts:\n---\nedges: []":                    "line 2: a second document",
		"edges:\n- {from: a, to: b}":                "line 2: an edge needs mbit, rtt_us or blocked",
		"hosts:\n  a:\n    nics: {\"\": {node: 1}}": "line 3: not a name",
		"edges: {}":                                   "line 1: edges is not a list",
		"edges:\n- {from: a, to: a}":                  "line 2: an edge needs from and to",
		"edges:\n- {from: a, to: b, mbit: 0}":         `line 2: "0" is not a number above 0`,
		"edges:\n- {from: a, to: b, net: x, mbit: 1}": `line 2: "x" is not a network`,
		"edges:\n- {from: a, to: b, rtt_us: .nan}":    `line 2: ".nan" is not a number`,
		strings.Repeat(" ", facts.MaxFile+1):          "more than 4194304 bytes",
	} {
		_, err := facts.Parse([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v, should be %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("hosts: &a {b: *a}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := facts.Parse(text)
		if err != nil {
			return
		}
		h := topology.Host{Name: "host1"}
		if err := file.Override(&h); err == nil && len(h.NICs) > 0 {
			t.Error("a NIC from nowhere")
		}
		for _, e := range file.Edges([]topology.Host{{Name: "a", Session: "0x1"}, {Name: "b"}}) {
			if e.From == e.To || e.Bandwidth < 0 || e.RTT < 0 {
				t.Errorf("edge %+v", e)
			}
		}
	})
}

func TestWrite(t *testing.T) {
	hosts := []topology.Host{{Name: "me@a", Labels: map[string]string{"esxi": "e: \"1\""}}, {Name: "10.0.0.2"}}
	edges := []topology.Edge{{From: 0, To: 1, Bandwidth: 1e9, RTT: 55e-6}, {From: 1, To: 0, RTT: 1e-3},
		{From: 1, To: 0, Blocked: true}, {From: 0, To: 1, Bandwidth: 5e8, Rail: "10.0.0.0/24"}, {From: 0, To: 1, Bandwidth: 5e8, Rail: "fd00::/64"}}
	f, err := facts.Parse(facts.Write(hosts, edges, "a note\nof: two"))
	must.Do(t, err)
	if got := f.Edges([]topology.Host{{Name: "a"}, {Name: "10.0.0.2"}}); !reflect.DeepEqual(got, edges) {
		t.Errorf("edges %+v, should be %+v", got, edges)
	}
	again := topology.Host{Name: "a"}
	if err := f.Override(&again); err != nil || again.Labels["esxi"] != `e: "1"` {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := facts.Parse(facts.Write(nil, nil)); err != nil {
		t.Error(err)
	}
}

// TestUndated: a move does not end labels without a session.
func TestUndated(t *testing.T) {
	f, err := facts.Parse([]byte("hosts:\n  a: {rack: r, esxi: e, by: vCenter}\n  b: {esxi: e, session: '0x1'}\n  c: {}\n"))
	must.Do(t, err)
	for _, c := range []struct {
		name, session string
		want          []string
	}{{"a", "0x2", []string{"esxi", "rack"}}, {"b", "0x2", nil}, {"b", "", []string{"esxi"}}, {"c", "", nil}, {"d", "", nil}} {
		if got := f.Undated(topology.Host{Name: c.name, Session: c.session}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s with session %q: %v, should be %v", c.name, c.session, got, c.want)
		}
	}
}

// TestLabelSources: labels keep the source that the file names, also in a file that is written of them.
func TestLabelSources(t *testing.T) {
	read := func(text []byte) []topology.Host {
		t.Helper()
		f, err := facts.Parse(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		hosts := []topology.Host{{Name: "a"}, {Name: "b"}, {Name: "c", Labels: map[string]string{"rack": "r"}, LabelSources: map[string]string{"rack": "guestinfo"}}}
		for i := range hosts {
			must.Do(t, f.Override(&hosts[i]))
		}
		return hosts
	}
	text := []byte("hosts:\n  a: {esxi: e1, zone: z, by: vCenter}\n  b: {esxi: e1}\n  c: {esxi: e2, by: vCenter}\n  d: {by: vCenter}\n")
	want := []map[string]string{{"esxi": "vCenter", "zone": "vCenter"}, {"esxi": "topology file"}, {"esxi": "vCenter", "rack": "guestinfo"}}
	for range 2 {
		hosts := read(text)
		for i, h := range hosts {
			if !reflect.DeepEqual(h.LabelSources, want[i]) {
				t.Errorf("%s: labels are told by %v, should be %v", h.Name, h.LabelSources, want[i])
			}
		}
		text, want[2] = facts.Write(hosts, nil), map[string]string{"esxi": "topology file", "rack": "topology file"} // several sources
	}
	if _, err := facts.Parse([]byte("hosts:\n  a: {by: [x]}\n")); err == nil {
		t.Error("a list is taken for who told")
	}
}
