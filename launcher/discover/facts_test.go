package discover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gorun/topology"
	"gorun/topology/facts"
)

// TestRereadFacts: a topology file that changes is read when it has settled, and one with a mistake is noted once.
func TestRereadFacts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "facts.yaml")
	at := time.Now()
	write := func(text string) {
		t.Helper()
		at = at.Add(time.Second) // clocks of file systems are coarse
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	const first, measured = "hosts: {a: {rack: r1}}\n", "\nedges: [{from: a, to: b, mbit: 10}]\n"
	write(first)
	r := reader{Facts: Facts{
		File: file, Text: []byte(first + measured), Measured: []byte(measured), Hosts: []topology.Host{{Name: "a"}, {Name: "b"}},
	}}
	look := func(want, say string) {
		t.Helper()
		text, message := r.look()
		if string(text) != want || say == "" && message != "" || !strings.Contains(message, say) {
			t.Errorf("sends %q and says %q; should be %q and %q", text, message, want, say)
		}
		if _, err := facts.Parse(text); err != nil {
			t.Error(err)
		}
	}
	look("", "")
	look("", "") // as it was
	write("hosts: {a: {rack: r2}}\n")
	look("", "") // it may be written still
	look("hosts: {a: {rack: r2}}\n"+measured, "has changed")
	look("", "")
	write("hosts: {a: {rock: r2}}\n")
	look("", "")
	look("", `facts.yaml: line 1: a host has no "rock"; its previous content still counts`)
	look("", "")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	look("", "")
	look("", "no such file or directory; its previous content still counts")
	look("", "")
	write("hosts: {a: {rack: r3}}\nedges: [{from: b, to: a, mbit: 20}]\n")
	look("", "")
	look("hosts: {a: {rack: r3}}\nedges: [{from: b, to: a, mbit: 20}]\n", "has changed") // its edges instead of those measured
	write("edges: [{from: x, to: y, mbit: 20}]\n")
	look("", "")
	look("edges: [{from: x, to: y, mbit: 20}]\n", "has changed")
}
