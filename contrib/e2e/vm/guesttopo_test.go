package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/lab/vm"
	"gorun/topology"
)

// guestTopology has two booted guests probed for what their hypervisor gave them: two NUMA nodes, each with a CPU,
// half of the memory and a vmxnet3 NIC on a PCI bus of its own, in a machine that calls itself vSphere's.
func guestTopology(ctx context.Context, t *testing.T, l *vm.Lab, binary string) {
	topo := func(args ...string) string {
		t.Helper()
		args = append([]string{"topo", "-H", "vm1,vm2", "--start-timeout", "4m"}, args...)
		cmd := l.Command(ctx, binary, args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("gorun %s: %v\n%s", strings.Join(args, " "), err, errs.String())
		}
		return string(out)
	}
	text := topo("--json")
	var found struct {
		Hosts []topology.Host
		Ring  []struct{ From, To string }
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil || len(found.Hosts) != 2 || len(found.Ring) != 2 {
		t.Fatalf("%v\n%s", err, text)
	}
	for i, h := range found.Hosts {
		if want := fmt.Sprintf("vm%d", i+1); h.Name != want || h.Hostname != want || h.Platform != "vmware" || h.Arch != "amd64" || h.Kernel == "" || h.Identity == "" {
			t.Errorf("%s: name %q, hostname %q, platform %q, arch %q, kernel %q, identity %q", want, h.Name, h.Hostname, h.Platform, h.Arch, h.Kernel, h.Identity)
		}
		if h.CPUs != 2 || !slices.Equal(h.Usable, []int{0, 1}) || len(h.Nodes) != 2 {
			t.Fatalf("%s: %d CPUs, usable %v, %d nodes", h.Name, h.CPUs, h.Usable, len(h.Nodes))
		}
		for id, n := range h.Nodes {
			distance := []int{20, 20}
			distance[id] = 10
			// A guest has 512 MiB, less what its kernel keeps for itself.
			if n.ID != id || !slices.Equal(n.CPUs, []int{id}) || !slices.Equal(n.Distance, distance) || n.MemBytes < 128<<20 || n.MemBytes > 256<<20 || n.Socket != id {
				t.Errorf("%s: node %d is %+v", h.Name, id, n)
			}
			name, net := []string{"ens192", "ens224"}[id], 77+id
			at := slices.IndexFunc(h.NICs, func(n topology.NIC) bool { return n.Name == name })
			if at < 0 {
				t.Fatalf("%s has no NIC %s: %+v", h.Name, name, h.NICs)
			}
			nic := h.NICs[at]
			if nic.Driver != "vmxnet3" || nic.Node != id || !nic.Up || nic.MTU != 1500 || nic.Queues < 1 || nic.MAC != fmt.Sprintf("00:50:56:00:0%d:0%d", id, i+1) ||
				!slices.Contains(nic.Addrs, fmt.Sprintf("10.%d.0.%d/24", net, i+1)) {
				t.Errorf("%s: NIC %+v", h.Name, nic)
			}
			// Node 0's devices are behind bus 64, node 1's behind bus 128: a root, and a port.
			root := fmt.Sprintf("pci0000:%02x", 64*(id+1))
			if len(nic.Path) != 2 || nic.Path[0] != root || !strings.HasPrefix(nic.Path[1], "0000:"+path.Base(root)[8:]+":") || nic.PCI == nic.Path[1] || nic.PCI == "" {
				t.Errorf("%s: %s is %s on the path %v, not below %s", h.Name, name, nic.PCI, nic.Path, root)
			}
		}
		if e := found.Ring[i]; e.From != h.Name || e.To != found.Hosts[1-i].Name {
			t.Errorf("edge %d of the ring is %+v", i, e)
		}
	}
	if a, b := found.Hosts[0], found.Hosts[1]; a.Identity == b.Identity {
		t.Errorf("two guests have the identity %s", a.Identity)
	}

	text = topo("--ascii")
	for _, want := range []string{`(?m)^\+- vm1 -`, `\+- vm2 -`, `VMware VM, Linux `, `2 CPUs`, `\+- NUMA node 0 -`, `\+- NUMA node 1 -`, `distance 20 to node 1`,
		`NIC ens192: vmxnet3, `, `NIC ens224: vmxnet3, `, `(?m)^\+--> \* vm1$`, `(?m)^\|    \* vm2$`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no match for %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "NUMA node unknown") {
		t.Errorf("a device is on no node:\n%s", text)
	}
}
