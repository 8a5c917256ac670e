package probe_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/topology"
	"gorun/topology/probe"
	"gorun/topology/probe/probetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestTrees compares all that is found with files, which were read through once, and TestFacts names what is
// the point of each.
func TestTrees(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) < 10 {
		t.Fatal(archives, err)
	}
	for _, archive := range archives {
		t.Run(archive, func(t *testing.T) {
			host := probetest.Probe(t, archive)
			host.Arch = "amd64" // wherever the test runs
			text, err := json.MarshalIndent(host, "", " ")
			must.Do(t, err)
			got := string(text) + "\n"
			golden := strings.TrimSuffix(archive, ".txtar") + ".json"
			if *update {
				must.Do(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			if want, err := os.ReadFile(golden); err != nil || string(want) != got {
				t.Errorf("%s (%v), after a look at it run go test -update; got\n%s", golden, err, got)
			}
		})
	}
}

func TestFacts(t *testing.T) {
	host := func(name string) topology.Host { return probetest.Probe(t, filepath.Join("testdata", name+".txtar")) }
	check := func(what string, got, want any) {
		t.Helper()
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			t.Errorf("%s: %s, should be %s", what, g, w)
		}
	}
	h := host("baremetal")
	check("platform", h.Platform, "baremetal")
	check("VLAN on a bond on node 1", []any{h.NICs[1].Driver, h.NICs[1].Lower, h.NICs[1].Node}, "[vlan [bond0] 1]")
	check("a port without a carrier", []any{h.NICs[2].Up, h.NICs[2].Speed}, "[false -1]")
	check("bridge above a card", h.NICs[3].Path, "[pci0000:80 0000:80:01.0]")
	check("GPUs of the driver", len(h.GPUs), 2)

	h = host("hgx")
	check("switches", h.Switches, 4)
	check("links", h.GPUs[7].Links, "[NV18 NV18 NV18 NV18 NV18 NV18 NV18 X]")
	check("nodes of GPUs", []int{h.GPUs[3].Node, h.GPUs[4].Node}, "[0 1]")
	check("RoCE", []any{h.RDMA[2].NIC, h.RDMA[2].Ports[0].Speed, h.RDMA[2].Ports[0].GIDs[1].Type}, "[eth2 400000 RoCE v2]")
	check("cache", h.Nodes[1].Caches[3], topology.Cache{Level: 3, Type: "Unified", Bytes: 105 << 20, Count: 1})
	check("sockets", []int{h.Nodes[0].Socket, h.Nodes[1].Socket}, "[0 1]")

	h = host("vsphere")
	check("a flat virtual machine knows no node", h.NICs[0].Node, -1)
	h = host("vsphere8")
	check("hardware", []string{h.Platform, h.Hardware}, "[vmware 20]")
	check("what its administrator says", []string{h.Labels["esxi"], h.Labels["esxi-release"]}, "[esx-03.lab VMware ESXi 8.0.3 build-24022510]")
	check("nodes of NICs", []int{h.NICs[0].Node, h.NICs[1].Node}, "[0 1]")
	check("passthrough", []any{h.GPUs[1].Mode, h.GPUs[1].Node, h.GPUs[1].Links}, "[passthrough 1 [SYS X]]")

	h = host("mig")
	check("slices", h.GPUs[0].MIG[0], "{MIG-aaaa0000-5d1f-5f52-9a11-000000000001 3g.20gb}")
	h = host("vgpu")
	check("profiles", []string{h.GPUs[0].Profile, h.GPUs[1].Profile}, "[40C 3-20C]")
	check("licence", h.GPUs[1].Licence, "Unlicensed (Restricted)")

	for _, name := range []string{"pvrdma-a", "pvrdma-b"} { // with and without the kernel's word for it
		h = host(name)
		check(name, []any{h.RDMA[0].Driver, h.RDMA[0].NIC}, "[vmw_pvrdma ens192]")
	}
	check("IPv4 address", h.RDMA[0].Ports[0].GIDs[2].Type, "RoCE v2")

	h = host("cloud")
	check("virtual function", []any{h.NICs[1].VF, h.NICs[1].Node}, "[true 1]")
	check("InfiniBand", h.RDMA[0].Ports[0].Link, "InfiniBand")
	h = host("microvm")
	check("a real machine", []any{h.Platform, h.CPUs, h.MemBytes >> 20, len(h.NICs), h.NICs[0].Driver, h.NICs[0].Node, h.NICs[0].Queues}, "[vm 2 24105 1 virtio_net -1 1]")
	h = host("container")
	check("limits", []int64{int64(h.CPUs), h.MemBytes >> 30}, "[3 4]")
	h = host("virtio")
	check("limits of the pod", []int64{int64(h.CPUs), h.MemBytes >> 30}, "[4 32]")
}

// TestIdentity: moved, a machine is the same; cloned, it is another with the same installation.
func TestIdentity(t *testing.T) {
	probed := func(change func(root string)) topology.Host {
		root := probetest.Unpack(t, "testdata/vsphere8.txtar")
		change(root)
		h, err := probe.Probe(t.Context(), root)
		must.Do(t, err)
		return h
	}
	write := func(root, name, content string) { write(t, root, name, content) }
	const uuid, mac = "sys/class/dmi/id/product_uuid", "sys/class/net/ens192/address"
	before := probed(func(string) {})
	moved := probed(func(root string) { write(root, "proc/meminfo", "MemTotal: 12 kB") })
	clone := probed(func(root string) { write(root, mac, "00:50:56:9a:ff:ff") })
	grown := probed(func(root string) { // a card that is plugged in has any address of its own
		for _, dir := range []string{"sys/devices/pci0000:60/0000:60:00.0", "sys/class/net/ens256/queues/rx-0"} {
			mkTarget(t, filepath.Join(root, dir))
		}
		must.Do(t, os.Symlink("../../../devices/pci0000:60/0000:60:00.0", filepath.Join(root, "sys/class/net/ens256/device")))
		for name, text := range map[string]string{"type": "1", "operstate": "up", "address": "00:00:00:9a:00:00"} {
			write(root, "sys/class/net/ens256/"+name, text)
		}
	})
	if len(grown.NICs) != len(before.NICs)+1 || grown.NICs[2].PCI != "0000:60:00.0" || grown.Identity != before.Identity {
		t.Errorf("with another card it is %q, was %q: %+v", grown.Identity, before.Identity, grown.NICs)
	}
	renewed := probed(func(root string) {
		write(root, uuid, "another")
		write(root, "etc/machine-id", "another")
	})
	user := probed(func(root string) { // who may not read what is root's
		must.Do(t, os.Remove(filepath.Join(root, uuid)))
	})
	if user.Identity != before.Identity {
		t.Errorf("asked as a user it is %q, as root %q", user.Identity, before.Identity)
	}
	bare := func(name string) string {
		return probed(func(root string) {
			write(root, "etc/machine-id", "")
			write(root, uuid, name)
		}).Identity
	}
	if one, other := bare("1"), bare("2"); one == other || one == "" {
		t.Errorf("without a machine-id: %q and %q", one, other)
	}
	if before.Identity == "" || moved.Identity != before.Identity {
		t.Errorf("moved from %q to %q", before.Identity, moved.Identity)
	}
	if clone.Identity == before.Identity || clone.System != before.System {
		t.Errorf("clone %s of %s, system %s of %s", clone.Identity, before.Identity, clone.System, before.System)
	}
	if renewed.Identity == before.Identity || renewed.System == before.System {
		t.Error("a machine made new is the same")
	}
	got := topology.Duplicates([]topology.Host{{Name: "a", Identity: "1", System: "s"}, {Name: "b", Identity: "1", System: "s"},
		{Name: "c", Identity: "2", System: "s"}, {Name: "d"}, {Name: "e"}})
	want := []string{"a and b are one machine", "a and c are clones with the same /etc/machine-id"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, should be %q", got, want)
	}
}

// TestIdentityOfContainers: containers of one image are different machines, on one machine as on several, where the
// first ones have the same address; one of them is the same under two names. There is no identity if even the kernel's
// start is not known.
func TestIdentityOfContainers(t *testing.T) {
	namespace := "pid:[1]"
	container := func(start, mac string) topology.Host {
		root := probetest.Unpack(t, "testdata/container.txtar")
		mkTarget(t, filepath.Join(root, "proc/self/ns"))
		must.Do(t, os.Symlink(namespace, filepath.Join(root, "proc/self/ns/pid")))
		for name, text := range map[string]string{"etc/machine-id": "the image's", "proc/sys/kernel/random/boot_id": start, "sys/class/net/eth0/address": mac} {
			write(t, root, name, text)
		}
		h, err := probe.Probe(t.Context(), root)
		must.Do(t, err)
		h.Name = start + " " + mac
		return h
	}
	const first, second = "02:42:ac:11:00:02", "02:42:ac:11:00:03"
	hosts := []topology.Host{container("s1", first), container("s1", second), container("s2", first), container("s1", first)}
	if hosts[3].Identity != hosts[0].Identity || hosts[0].Identity == "" {
		t.Errorf("one container is %q and %q", hosts[0].Identity, hosts[3].Identity)
	}
	if got := topology.Duplicates(hosts[:3]); len(got) != 1 || !strings.Contains(got[0], "are clones") {
		t.Errorf("%q, should be one line about clones", got)
	}
	namespace = "pid:[2]"
	if h := container("s1", first); h.Identity == hosts[0].Identity {
		t.Error("a container with the address of another one, on the network of their machine, is that one")
	}
	if h := container("", first); h.Identity != "" || h.System != hosts[0].System {
		t.Errorf("identity %q, system %q of %q", h.Identity, h.System, hosts[0].System)
	}
}

// TestNvidiaNonsense: what nvidia-smi prints when it fails leaves GPUs unknown, and is no error.
func TestNvidiaNonsense(t *testing.T) {
	root := t.TempDir()
	mkTarget(t, filepath.Join(root, "sys"))
	mkTarget(t, filepath.Join(root, "proc/driver/nvidia/gpus"))
	for _, said := range []string{"", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "0, a, b, c, d\nGPU0\n"} {
		h, err := probe.Prober{Root: root, Run: func(context.Context, string, ...string) ([]byte, error) { return []byte(said), nil }}.Probe(t.Context())
		if err != nil || len(h.GPUs) > 1 || len(h.GPUs) == 1 && h.GPUs[0].MemBytes != -1 {
			t.Errorf("%q: %+v, %v", said, h.GPUs, err)
		}
	}
}

func mkTarget(t *testing.T, dir string) {
	must.Do(t, os.MkdirAll(dir, 0o755))
}

// write makes a file of a tree.
func write(t *testing.T, root, name, content string) {
	mkTarget(t, filepath.Dir(filepath.Join(root, name)))
	must.Do(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
}

// TestNothing has no file at all: everything is unknown, and that is no error.
func TestNothing(t *testing.T) {
	root := t.TempDir()
	if _, err := probe.Probe(context.Background(), root); err == nil || !strings.Contains(err.Error(), root) {
		t.Errorf("probe of an empty directory: %v", err)
	}
	mkTarget(t, filepath.Join(root, "sys"))
	got, err := probe.Probe(context.Background(), root)
	must.Do(t, err)
	if got.CPUs != -1 || got.MemBytes != -1 || got.Platform != "" || len(got.Nodes)+len(got.NICs)+len(got.GPUs) > 0 {
		t.Errorf("found %+v in nothing", got)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := probe.Probe(ctx, "/"); err == nil {
		t.Error("no error")
	}
}

// TestThisMachine compares with what Go knows.
func TestThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux's sys and proc")
	}
	got, err := probe.Probe(context.Background(), "/")
	must.Do(t, err)
	hostname, err := os.Hostname()
	must.Do(t, err)
	if got.Hostname != hostname || got.CPUs < 1 || got.CPUs > runtime.NumCPU() || got.MemBytes < 1<<20 || got.Kernel == "" {
		t.Errorf("%s with %d CPUs: found %+v", hostname, runtime.NumCPU(), got)
	}
	if runtime.GOARCH == "amd64" { // the kernel shows the same bit of CPUID as a flag
		info, err := os.ReadFile("/proc/cpuinfo")
		must.Do(t, err)
		if virtual := regexp.MustCompile(`(?m)^flags\s*:.*\bhypervisor\b`).Match(info); virtual != (got.Hypervisor != "") {
			t.Errorf("hypervisor %q, where the kernel's flag says %v", got.Hypervisor, virtual)
		}
	}
	for _, nic := range got.NICs {
		i, err := net.InterfaceByName(nic.Name)
		if err != nil || i.Flags&net.FlagLoopback != 0 || nic.MTU != i.MTU || nic.MAC != i.HardwareAddr.String() {
			t.Errorf("%+v: %+v, %v", nic, i, err)
			continue
		}
		addrs, err := i.Addrs()
		must.Do(t, err)
		for _, a := range nic.Addrs {
			if !slices.ContainsFunc(addrs, func(x net.Addr) bool { return x.String() == a }) {
				t.Errorf("%s does not have address %s", nic.Name, a)
			}
		}
	}
}

// FuzzTree puts anything into the files that are parsed.
func FuzzTree(f *testing.F) {
	f.Add("0-3,8", "0::/a/../../b", "max 100000", "Node 0 MemTotal: 12 kB")
	f.Add("0-99999999999", "1:cpu:", "1 0", "Node 0 MemTotal: 9223372036854775807 kB")
	f.Add(",-,3-1,x", "::::\n\n12:cpu,cpuacct:/x", "-1 -1", "")
	f.Fuzz(func(t *testing.T, list, groups, limit, memory string) {
		root := t.TempDir()
		for name, content := range map[string]string{
			"proc/self/status": "Cpus_allowed_list:\t" + list, "proc/self/cgroup": groups, "proc/meminfo": memory,
			"sys/fs/cgroup/cpu.max": limit, "sys/fs/cgroup/memory.max": limit,
			"sys/devices/system/node/node0/cpulist": list, "sys/devices/system/node/node0/meminfo": memory,
			"sys/class/net/eth0/type": "1", "sys/class/net/eth0/operstate": "up", "sys/class/net/eth0/speed": limit,
			"proc/driver/nvidia/gpus/x/information": memory,
		} {
			write(t, root, name, content)
		}
		host, err := probe.Probe(context.Background(), root)
		if err != nil || host.CPUs == 0 || host.CPUs < -1 || host.MemBytes < -1 || host.NICs[0].Speed < -1 {
			t.Errorf("%+v, %v", host, err)
		}
	})
}
