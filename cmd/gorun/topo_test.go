package main

import (
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/topology"
	"gorun/topology/facts"
)

// TestWarnsOfMovedHosts: the warning names each host that the file may be wrong about, and the hint comes once.
func TestWarnsOfMovedHosts(t *testing.T) {
	file, err := facts.Parse([]byte("hosts:\n  a: {session: '0x1'}\n  b: {session: '0x2'}\n  c: {session: '0x3'}\n"))
	must.Do(t, err)
	ring := ringPlan{file: "f.yaml", File: file}
	hosts := []topology.Host{{Name: "a", Session: "0x9"}, {Name: "b", Session: "0x2"}, {Name: "c", Session: "0x8"}}
	const text = " was moved or started again since f.yaml was written: its labels and edges there do not count\n"
	for _, tt := range []struct {
		hosts     []topology.Host
		measuring bool
		want      string
	}{
		{hosts, false, "gorun: warning: a" + text + "gorun: warning: c" + text + "gorun: hint: gorun topo -H a,b,c --measure --save f.yaml\n"},
		{hosts[1:2], false, ""},
		{hosts, true, ""},
	} {
		var said strings.Builder
		if warnMoved(&said, ring, tt.hosts, tt.measuring); said.String() != tt.want {
			t.Errorf("measuring %v: %q, want %q", tt.measuring, said.String(), tt.want)
		}
	}
}
