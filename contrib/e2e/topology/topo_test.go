package topology

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// TestTopo asks two hosts over ssh what they are; the first time brings the binary there.
func TestTopo(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	r := c.Gorun("topo", "-H", "host1,host2", "--ascii").Good(t)
	for _, want := range []string{`(?m)^\+- host1 -`, `\+- host2 -`, `NIC [^|]*: veth, `, `(?m)^The ring$`,
		`(?m)^\+--> \* host1$`, `(?m)^\|    \* host2$`} {
		if !regexp.MustCompile(want).MatchString(r.Stdout) {
			t.Errorf("no match for %s in\n%s", want, r.Stdout)
		}
	}

	r = c.Gorun("topo", "-H", "host1,host2", "--json")
	type nic struct{ Addrs []string }
	var found struct {
		Hosts []struct {
			Name string
			CPUs int
			NICs []nic
		}
		Ring []struct{ From, To string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil || len(found.Hosts) != 2 || len(found.Ring) != 2 {
		t.Fatalf("%v, exit code %d\n%s\n%s", err, r.Code, r.Stdout, r.Stderr)
	}
	for i, h := range found.Hosts {
		// Each host speaks of itself: it has an address that the other does not have.
		address := c.Host(i + 1).Address().String()
		for _, other := range found.Hosts {
			has := slices.ContainsFunc(other.NICs, func(n nic) bool {
				return slices.ContainsFunc(n.Addrs, func(a string) bool { return strings.HasPrefix(a, address+"/") })
			})
			if has != (other.Name == h.Name) {
				t.Errorf("address %s of %s: %v is the answer of %s\n%s", address, h.Name, has, other.Name, r.Stdout)
			}
		}
		if h.CPUs < 1 || h.Name != found.Ring[i].From {
			t.Errorf("host %+v, edge %+v", h, found.Ring[i])
		}
	}

	r = c.Gorun("topo", "-H", "host1,host2", "--svg", "-")
	if r.Code != 0 || !strings.Contains(r.Stdout, "host1 → host2: ") {
		t.Errorf("exit code %d, %s\n%s", r.Code, r.Stderr, r.Stdout)
	}

	r = c.Gorun("topo", "-H", "host1,host2", "-p", "2")
	if r.Code != 255 || !strings.Contains(r.Stderr, "gorun: error: 2 of 2 hosts failed") {
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}
}

// TestProbeWithoutRoot: a user with no rights finds out as much of a machine as root does.
func TestProbeWithoutRoot(t *testing.T) {
	c := e2etest.NewCluster(t, 1)
	ask := func(command ...string) string {
		t.Helper()
		out, err := c.Host(1).Exec(t.Context(), command[0], command[1:]...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
		return out
	}
	const binary = "/tmp/gorun" // of this host alone: the way to the other one may not be open to all
	ask("install", "-m", "755", c.Binary, binary)
	root := ask("env", "HOME=/nowhere", binary, "topo", "--json")
	nobody := ask("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "env", "HOME=/nowhere", binary, "topo", "--json")
	if nobody != root {
		t.Errorf("as nobody:\n%s\nas root:\n%s", nobody, root)
	}
}
