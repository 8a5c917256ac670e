//go:build linux

package main

import "testing"

// TestProbeWithoutRoot: a user with no rights finds out as much of a machine as root does.
func TestProbeWithoutRoot(t *testing.T) {
	c := newCluster(t, 1)
	ask := func(command ...string) string {
		t.Helper()
		out, err := c.Host(1).Exec(t.Context(), command[0], command[1:]...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
		return out
	}
	const binary = "/tmp/gorun" // of this host alone: the way to the other one may not be open to all
	ask("install", "-m", "755", c.binary, binary)
	root := ask("env", "HOME=/nowhere", binary, "topo", "--json")
	nobody := ask("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "env", "HOME=/nowhere", binary, "topo", "--json")
	if nobody != root {
		t.Errorf("as nobody:\n%s\nas root:\n%s", nobody, root)
	}
}
