//go:build linux

package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTopo asks two hosts over ssh what they are; the first time brings the binary there.
func TestTopo(t *testing.T) {
	c := newCluster(t, 2)
	r := c.gorun("topo", "-H", "host1,host2", "--ascii")
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{`(?m)^\+- host1 -`, `\+- host2 -`, `NIC [^|]*: veth, `, `(?m)^The ring$`,
		`(?m)^\+--> \* host1$`, `(?m)^\|    \* host2$`} {
		if !regexp.MustCompile(want).MatchString(r.stdout) {
			t.Errorf("no match for %s in\n%s", want, r.stdout)
		}
	}

	r = c.gorun("topo", "-H", "host1,host2", "--json")
	type nic struct{ Addrs []string }
	var found struct {
		Hosts []struct {
			Name string
			CPUs int
			NICs []nic
		}
		Ring []struct{ From, To string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &found); err != nil || len(found.Hosts) != 2 || len(found.Ring) != 2 {
		t.Fatalf("%v, exit code %d\n%s\n%s", err, r.code, r.stdout, r.stderr)
	}
	for i, h := range found.Hosts {
		// Each host speaks of itself: it has an address that the other does not have.
		address := c.Host(i + 1).Address().String()
		for _, other := range found.Hosts {
			has := slices.ContainsFunc(other.NICs, func(n nic) bool {
				return slices.ContainsFunc(n.Addrs, func(a string) bool { return strings.HasPrefix(a, address+"/") })
			})
			if has != (other.Name == h.Name) {
				t.Errorf("address %s of %s: %v is the answer of %s\n%s", address, h.Name, has, other.Name, r.stdout)
			}
		}
		if h.CPUs < 1 || h.Name != found.Ring[i].From {
			t.Errorf("host %+v, edge %+v", h, found.Ring[i])
		}
	}

	r = c.gorun("topo", "-H", "host1,host2", "--svg", "-")
	if r.code != 0 || !strings.Contains(r.stdout, "host1 → host2: ") {
		t.Errorf("exit code %d, %s\n%s", r.code, r.stderr, r.stdout)
	}

	r = c.gorun("topo", "-H", "host1,host2", "-p", "2")
	if r.code != 255 || !strings.Contains(r.stderr, "gorun: error: 2 of 2 hosts failed") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

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
