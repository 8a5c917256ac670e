package launch

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// TestNICsOfOtherNames: the NIC for data has another name on each host. It is found by names, by its network and by its
// driver, each host reports which one it takes, the frameworks of its ranks find it, and a host that has none of what
// was asked for is named with what it has.
func TestNICsOfOtherNames(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 3)
	must.Do(t, c.AddNetwork(netip.MustParsePrefix("10.78.0.0/24"), lab.Link{}))
	names := []string{"lan1", "storage", "fast9"}
	for i, h := range c.Hosts() {
		c.Shell(h, fmt.Sprintf("ip link set eth1 down && ip link set eth1 name %s && ip link set %[1]s up", names[i]))
	}
	const where = "host1,host2,host3"
	say := `echo $HOROVOD_HOSTNAME ${NCCL_SOCKET_IFNAME#=} $GLOO_SOCKET_IFNAME ${MASTER_ADDR%.*}`
	// expect starts a job over some NICs, and wants it to go over the one of that driver in that network.
	expect := func(list, driver, network string) {
		t.Helper()
		r := c.Gorun("-v", "--network-interfaces", list, "--no-tag-output", "-H", where, "sh", "-c", say)
		if r.Code != 0 {
			t.Fatalf("%s: exit code %d\n%s%s", list, r.Code, r.Stdout, r.Stderr)
		}
		for i, name := range names {
			host := fmt.Sprint("host", i+1)
			if want := fmt.Sprintf("%s %s %[2]s %s\n", host, name, network); !strings.Contains(r.Stdout, want) {
				t.Errorf("%s: no %q in\n%s", list, want, r.Stdout)
			}
			if want := fmt.Sprintf("gorun: %s: data goes over %s %s %s.%d/24\n", host, name, driver, network, i+1); !strings.Contains(r.Stderr, want) {
				t.Errorf("%s: no %q in\n%s", list, want, r.Stderr)
			}
		}
	}
	expect(strings.Join(names, ","), "veth", "10.78.0")
	expect("10.78.0.0/24", "veth", "10.78.0")

	// host3 has neither of the two.
	r := c.Gorun("--network-interfaces", "lan1,storage", "-H", where, "true")
	want := "gorun: error: host3: start daemon: find address: none of lan1,storage is up here, where the NICs are: eth0 veth 10.77.0.3/24, fast9 veth 10.78.0.3/24\n"
	if r.Code != 2 || !strings.Contains(r.Stderr, want) || !strings.Contains(r.Stderr, "gorun: hint: --network-interfaces takes names, drivers and networks") {
		t.Errorf("exit code %d, want 2 and %q in\n%s", r.Code, want, r.Stderr)
	}
	r = c.Gorun("topo", "--network-interfaces", "lan1,storage", "-H", where)
	if r.Code != 0 || !strings.Contains(r.Stderr, "gorun: warning: host3 has none of lan1,storage that is up\n") || strings.Contains(r.Stderr, "host1 has none") {
		t.Errorf("topo: exit code %d\n%s", r.Code, r.Stderr)
	}
	r = c.Gorun("topo", "--measure", "--network-interfaces", "lan1", "-H", where)
	if r.Code != 2 || !strings.Contains(r.Stderr, "gorun: error: 2 of 3 hosts failed\n") || !regexp.MustCompile(`host2 +measure +none of lan1 is up\n.*host3 +measure +none of lan1 is up\ngorun: hint: --network-interfaces `).MatchString(r.Stderr) {
		t.Errorf("topo --measure: exit code %d, want 2\n%s", r.Code, r.Stderr)
	}
	r = c.Gorun("--dry-run", "--network-interfaces", "lan1,storage", "-H", where, "true")
	if r.Code != 0 || !strings.Contains(r.Stdout, "\ndata between hosts goes over what each of them has of lan1,storage; ") {
		t.Errorf("dry run: exit code %d\n%s", r.Code, r.Stdout)
	}

	// The doctor looks at all NICs, and at the path between the ones that are named.
	c.Shell(c.Host(1), "ip link set lan1 mtu 1400")
	r = c.Gorun("doctor", "-H", where, "--network-interfaces", "lan1,storage")
	for _, want := range []string{`PASS +host1 +NIC lan1 `, `PASS +host2 +NIC storage `, `PASS +host3 +NIC fast9 `, `PASS +host1 +NIC for data +lan1 veth 10\.78\.0\.1\n`,
		`WARN +host2 +MTU +1500, but host1 has 1400`, `PASS +host1 +path to host2 +packets of 1400 bytes arrive`, `FAIL +host3 +NIC for data +none of lan1,storage is up here`} {
		if !regexp.MustCompile(want).MatchString(r.Stdout) || r.Code != 1 {
			t.Errorf("doctor: exit code %d, want 1 and a match for %s in\n%s\n%s", r.Code, want, r.Stdout, r.Stderr)
		}
	}
	c.Shell(c.Host(1), "ip link set lan1 mtu 1500")

	// Where no one chooses, data goes over the NICs by which ssh comes: ring and pictures speak of these, and faster ones
	// are named.
	facts := "hosts:\n"
	for i, name := range names {
		facts += fmt.Sprintf("  host%d: {nics: {eth0: {speed_mbit: 1000}, %s: {speed_mbit: 25000}}}\n", i+1, name)
	}
	file := c.Write("facts.yaml", facts, 0o600)
	r = c.Gorun("-v", "--topology", file, "-H", where, "true")
	for i, name := range names {
		for _, want := range []string{fmt.Sprintf(`(?m)^gorun:   host%d → host\d: 1 Gbit/s by topology file$`, i+1),
			fmt.Sprintf(`(?m)^gorun: host%d: data goes over eth0 veth 10\.77\.0\.%[1]d/24$`, i+1),
			fmt.Sprintf(`(?m)^gorun: host%d: %s with 25 Gbit/s is idle, data goes over eth0 with 1 Gbit/s; .*: --network-interfaces %[2]s$`, i+1, name)} {
			if r.Code != 0 || !regexp.MustCompile(want).MatchString(r.Stderr) {
				t.Errorf("exit code %d, no match for %s in\n%s", r.Code, want, r.Stderr)
			}
		}
	}
	r = c.Gorun("topo", "--json", "--topology", file, "-H", where)
	if strings.Count(r.Stdout, `"why": "1 Gbit/s by topology file"`) != 3 || strings.Count(r.Stdout, `"data_nic": "eth0"`) != 3 ||
		!strings.Contains(r.Stderr, "gorun: warning: host1: lan1 with 25 Gbit/s is idle, data goes over eth0 with 1 Gbit/s, and alike on 2 other hosts\ngorun: hint: --network-interfaces fast9,lan1,storage, if all hosts reach each other there\n") {
		t.Errorf("topo: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	r = c.Gorun("topo", "--json", "--topology", file, "-H", where, "--network-interfaces", strings.Join(names, ","))
	if strings.Count(r.Stdout, `"why": "25 Gbit/s by topology file"`) != 3 || strings.Contains(r.Stderr, "idle") {
		t.Errorf("topo: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}

	// An interface that is down is no other one: what the file holds about it still counts.
	c.Shell(c.Host(1), "ip link set lan1 down")
	if r = c.Gorun("topo", "--ascii", "--topology", file, "-H", where); r.Code != 0 || !strings.Contains(r.Stdout, "NIC lan1: veth, down,") || !strings.Contains(r.Stderr, "warning: host2: storage with 25 Gbit/s is idle") {
		t.Errorf("topo: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	c.Shell(c.Host(1), "ip link set lan1 up")

	t.Run("driver", func(t *testing.T) { // that only these have; the kernel may not have it to give
		for i, h := range c.Hosts() {
			line := fmt.Sprintf("ip address flush dev %s && ip link set %[1]s name port && ip link add link port name %[1]s type macvlan mode bridge && "+
				"ip address add 10.78.0.%d/24 dev %[1]s && ip link set port up && ip link set %[1]s up", names[i], i+1)
			c.Shell(h, "ip link set "+names[i]+" down")
			if _, err := h.Exec(t.Context(), "sh", "-c", line); err != nil {
				if strings.Contains(err.Error(), "Unknown device type") {
					t.Skip("this kernel has no macvlan (CONFIG_MACVLAN), whose driver differs from veth")
				}
				t.Fatal(err)
			}
		}
		expect("macvlan", "macvlan", "10.78.0")
	})
}
