package probe_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gorun/topology"
	"gorun/topology/probe"
)

// unpack makes a tree of files of an archive in the txtar format. What precedes the first file has a file
// of one line, or a symbolic link, on each line: "path: content" or "path -> target".
func unpack(t *testing.T, archive string) string {
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	create := func(name string) string {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		return name
	}
	sections := strings.Split("\n"+string(text), "\n-- ")
	for line := range strings.Lines(sections[0]) {
		if line = strings.TrimSuffix(line, "\n"); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, target, ok := strings.Cut(line, " -> "); ok {
			err = os.Symlink(target, create(name))
			mkTarget(t, filepath.Join(root, filepath.Dir(name), target))
		} else if name, content, ok := cutName(line); ok {
			err = os.WriteFile(create(name), []byte(content+"\n"), 0o644)
		} else {
			t.Fatalf("%s: cannot read line %q", archive, line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, section := range sections[1:] {
		name, content, ok := strings.Cut(section, " --\n")
		if !ok {
			t.Fatalf("%s: cannot read %q", archive, section)
		}
		if err := os.WriteFile(create(name), []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// mkTarget makes the directory that a link points to, such as that of a driver, if nothing else will.
func mkTarget(t *testing.T, dir string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// cutName separates a path, which may have colons of its own, from the content of its file.
func cutName(line string) (name, content string, ok bool) {
	if name, ok := strings.CutSuffix(line, ":"); ok {
		return name, "", true
	}
	return strings.Cut(line, ": ")
}

func TestTrees(t *testing.T) {
	none := []topology.GPU{}
	for name, want := range map[string]topology.Host{
		"baremetal": {Hostname: "gpu-node-7", Platform: "baremetal", Kernel: "6.8.0-45-generic", CPUs: 32, MemBytes: 528280584 << 10,
			Nodes: []topology.Node{
				{ID: 0, CPUs: []int{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}, MemBytes: 263852132 << 10, Distance: []int{10, 32, 14}},
				{ID: 1, CPUs: []int{8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31}, MemBytes: 264170188 << 10, Distance: []int{32, 10, 24}},
				{ID: 2, MemBytes: 134217728 << 10, Distance: []int{14, 24, 10}},
			},
			NICs: []topology.NIC{
				{Name: "bond0", Driver: "bond", Speed: 200000, MTU: 9000, Node: 1, Queues: -1, MAC: "b8:ce:f6:00:10:20", Up: true},
				{Name: "bond0.40", Driver: "vlan", Speed: 200000, MTU: 9000, Node: 1, Queues: -1, MAC: "b8:ce:f6:00:10:20", Up: true},
				{Name: "eno1", Driver: "tg3", Speed: -1, MTU: 1500, Node: 0, Queues: -1, PCI: "0000:02:00.0", MAC: "d0:8e:79:00:00:01"},
				{Name: "ens1f0np0", Driver: "mlx5_core", Speed: 100000, MTU: 9000, Node: 1, Queues: 2, PCI: "0000:81:00.0", MAC: "b8:ce:f6:00:10:20", Up: true},
				{Name: "ens1f1np1", Driver: "mlx5_core", Speed: 100000, MTU: 9000, Node: 1, Queues: -1, PCI: "0000:81:00.1", MAC: "b8:ce:f6:00:10:20", Up: true},
			},
			GPUs: []topology.GPU{
				{Index: 0, UUID: "GPU-0f1e2d3c-0000-1111-2222-333344445555", Name: "NVIDIA A100-SXM4-80GB", PCI: "0000:01:00.0", Node: 0},
				{Index: 1, UUID: "GPU-aabbccdd-0000-1111-2222-333344445555", Name: "NVIDIA A100-SXM4-80GB", PCI: "0000:c1:00.0", Node: 1},
			}},
		"vsphere": {Hostname: "train-vm-03", Platform: "vmware", Kernel: "5.14.0-427.el9.x86_64", CPUs: 8, MemBytes: 65806864 << 10,
			Nodes: []topology.Node{{CPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}, MemBytes: 65806864 << 10, Distance: []int{10}}},
			NICs: []topology.NIC{{Name: "ens192", Driver: "vmxnet3", Speed: 10000, MTU: 1500, Node: -1, Queues: 4, PCI: "0000:0b:00.0",
				MAC: "00:50:56:9a:12:34", Up: true}},
			GPUs: none},
		"container": {Hostname: "3f2a9c81d7be", Platform: "vm", Kernel: "4.18.0-553.el8_10.x86_64", CPUs: 3, MemBytes: 4 << 30,
			NICs: []topology.NIC{{Name: "eth0", Driver: "veth", Speed: 10000, MTU: 1450, Node: -1, Queues: 1, MAC: "02:42:ac:11:00:02", Up: true}},
			GPUs: none},
		"virtio": {Hostname: "worker-0", Platform: "kvm", Kernel: "6.6.31", CPUs: 4, MemBytes: 32 << 30,
			Nodes: []topology.Node{
				{ID: 0, CPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}, MemBytes: -1, Distance: []int{10, 20}},
				{ID: 1, CPUs: []int{8, 9, 10, 11, 12, 13, 14, 15}, MemBytes: -1, Distance: []int{20, 10}},
			},
			NICs: []topology.NIC{
				{Name: "br0", Driver: "bridge", Speed: -1, MTU: 1460, Node: 1, Queues: -1, Up: true},
				{Name: "eth0", Driver: "virtio_net", Speed: -1, MTU: 1460, Node: 1, Queues: -1, PCI: "0000:00:03.0", MAC: "42:01:0a:80:00:02", Up: true},
			},
			GPUs: none},
	} {
		t.Run(name, func(t *testing.T) {
			want.Arch = runtime.GOARCH
			got, err := probe.Probe(context.Background(), unpack(t, filepath.Join("testdata", name+".txtar")))
			if err != nil {
				t.Fatal(err)
			}
			gotText, wantText := render(t, got), render(t, want)
			for i := range max(len(gotText), len(wantText)) {
				if i >= len(gotText) || i >= len(wantText) || gotText[i] != wantText[i] {
					t.Fatalf("found\n%s\nshould be\n%s", strings.Join(gotText[i:], "\n"), strings.Join(wantText[i:], "\n"))
				}
			}
		})
	}
}

func render(t *testing.T, h topology.Host) []string {
	text, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// TestNothing has no file at all: everything is unknown, and that is no error.
func TestNothing(t *testing.T) {
	root := t.TempDir()
	if _, err := probe.Probe(context.Background(), root); err == nil || !strings.Contains(err.Error(), root) {
		t.Errorf("probe of an empty directory: %v", err)
	}
	mkTarget(t, filepath.Join(root, "sys"))
	got, err := probe.Probe(context.Background(), root)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got.Hostname != hostname || got.CPUs < 1 || got.CPUs > runtime.NumCPU() || got.MemBytes < 1<<20 || got.Kernel == "" {
		t.Errorf("%s with %d CPUs: found %+v", hostname, runtime.NumCPU(), got)
	}
	for _, nic := range got.NICs {
		i, err := net.InterfaceByName(nic.Name)
		if err != nil || i.Flags&net.FlagLoopback != 0 || nic.MTU != i.MTU || nic.MAC != i.HardwareAddr.String() {
			t.Errorf("%+v: %+v, %v", nic, i, err)
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			t.Fatal(err)
		}
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
			mkTarget(t, filepath.Dir(filepath.Join(root, name)))
			if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		host, err := probe.Probe(context.Background(), root)
		if err != nil || host.CPUs == 0 || host.CPUs < -1 || host.MemBytes < -1 || host.NICs[0].Speed < -1 {
			t.Errorf("%+v, %v", host, err)
		}
	})
}
