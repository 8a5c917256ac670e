// Package probe finds out what a machine has, from what any user may read in /sys and /proc: NUMA nodes,
// network interfaces, GPUs, limits of CPU and memory, and what it runs on.
//
// A fact that cannot be read is left unknown (-1 or empty), never guessed and never an error: containers hide many
// facts, and virtual machines lack them. The package starts no goroutine, changes nothing, measures nothing, and runs
// no program but nvidia-smi and, in VMware VMs, VMware Tools.
package probe

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"gorun/topology"
)

// Probe describes the machine whose file system is at root. With root "/", its own machine, it also
// asks the kernel for interfaces and addresses, the processor for its hypervisor, and nvidia-smi for GPUs.
// It fails only if there is neither a sys nor a proc directory, or the context is done.
func Probe(ctx context.Context, root string) (topology.Host, error) {
	if filepath.Clean(root) == "/" {
		host, _, err := This(ctx, "")
		return host, err
	}
	return Prober{Root: root}.Probe(ctx)
}

// This describes the machine that it runs on, and returns its interfaces at that time. If the user gives the path of
// vmtoolsd, the machine is a VMware VM, and the other programs of VMware Tools lie beside it.
func This(ctx context.Context, vmtoolsd string) (topology.Host, []Interface, error) {
	run := func(ctx context.Context, program string, args ...string) ([]byte, error) {
		if vmtoolsd != "" && program != nvidiaSMI {
			program = filepath.Join(filepath.Dir(vmtoolsd), program)
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.WaitDelay = time.Second
		return cmd.Output()
	}
	return Prober{Root: "/", Run: run, live: true, vmware: vmtoolsd != ""}.probe(ctx)
}

// runner returns the standard output of a program: nvidia-smi, or one of VMware Tools.
type runner = func(ctx context.Context, program string, args ...string) ([]byte, error)

// Prober describes a machine from its file system and from the output of programs.
type Prober struct {
	Root string
	Run  runner // nil runs nothing

	live   bool // the machine is the one this process runs on
	vmware bool // the user declared it a VMware VM
}

// Probe implements the package's function Probe.
func (p Prober) Probe(ctx context.Context) (topology.Host, error) {
	host, _, err := p.probe(ctx)
	return host, err
}

func (p Prober) probe(ctx context.Context) (topology.Host, []Interface, error) {
	t := tree(p.Root)
	if !t.has("sys") && !t.has("proc") {
		return topology.Host{}, nil, fmt.Errorf("probe machine: no sys or proc directory in %s", p.Root)
	}
	board := boardOf(t)
	allowed := allowedCPUs(t)
	host := topology.Host{
		Hostname:  t.text("proc/sys/kernel/hostname"),
		Platform:  board.platform,
		Hardware:  board.hardware,
		Kernel:    t.text("proc/sys/kernel/osrelease"),
		Arch:      runtime.GOARCH,
		CPUs:      usableCPUs(t, len(allowed)),
		Usable:    allowed,
		MemBytes:  usableMemory(t),
		Nodes:     nodes(t),
		Processor: board.processor,
		RDMA:      rdma(t),
	}
	if p.live {
		host.Hypervisor = hypervisor()
		if host.Platform == "" || host.Platform == "vm" { // DMI is hidden, as in a container
			known := map[string]string{"VMwareVMware": "vmware", "KVMKVMKVM": "kvm", "Microsoft Hv": "hyperv", "XenVMMXenVMM": "xen"}
			host.Platform = cmp.Or(known[host.Hypervisor], host.Platform)
		}
	}
	if host.GPUs = gpus(ctx, t, p.Run); len(host.GPUs) > 0 {
		host.Switches = nvswitches(t)
	}
	if host.Platform == "vmware" || p.vmware {
		host.Labels, host.Session = askTools(ctx, p.Run)
		sources := map[string]string{}
		for _, label := range guestinfoLabels {
			if host.Labels[label] != "" {
				sources[label] = "guestinfo"
				host.LabelSources = sources
			}
		}
	}
	var interfaces []Interface
	if p.live { // after the programs above, which may take seconds
		interfaces = Interfaces()
		host.NICs = liveNICs(t, interfaces)
	} else {
		host.NICs = treeNICs(t)
	}
	host.Identity, host.System = identity(t, host.NICs)
	if err := ctx.Err(); err != nil {
		return topology.Host{}, nil, fmt.Errorf("probe machine: %w", err)
	}
	return host, interfaces, nil
}

// tree is a file system below a directory. Its methods return zero values for missing files.
type tree string

func (t tree) path(name string) string { return filepath.Join(string(t), name) }

func (t tree) has(name string) bool {
	_, err := os.Stat(t.path(name))
	return err == nil
}

// text returns the content of a file without white space around it.
func (t tree) text(name string) string {
	return strings.TrimSpace(string(content(t.path(name))))
}

// content reads a file with as few system calls as possible. os.ReadFile also asks for the size, and registers the file
// with the poller; a description of a machine takes hundreds of files of one word each.
func content(name string) []byte {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	var all []byte
	for chunk := make([]byte, 4<<10); ; {
		n, err := syscall.Read(fd, chunk)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil
		case n <= 0:
			return all
		}
		all = append(all, chunk[:n]...)
	}
}

// number returns the integer in a file, -1 if there is none.
func (t tree) number(name string) int { return number(t.text(name)) }

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// names returns the entries of a directory in alphabetical order.
func (t tree) names(dir string) []string {
	entries, err := os.ReadDir(t.path(dir))
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// target returns the last element of a symbolic link's target.
func (t tree) target(name string) string {
	link, err := os.Readlink(t.path(name))
	if err != nil {
		return ""
	}
	return filepath.Base(link)
}

// field returns the value of a line "key: value" or "key value".
func field(text, key string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok && rest != "" && strings.ContainsRune(": \t", rune(rest[0])) {
			return strings.TrimSpace(strings.TrimLeft(rest, ": \t"))
		}
	}
	return ""
}

// mostCPUs bounds the CPU numbers in a list.
const mostCPUs = 1 << 16

// parseList parses the kernel's lists of CPUs, such as "0-3,8,10-11".
func parseList(list string) []int {
	var cpus []int
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, last := number(from), number(to)
		if !isRange {
			last = first
		}
		if first < 0 || last < first || last >= mostCPUs {
			continue
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// address matches the PCI address of a function: domain, bus, device.
var address = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`) })

// function is the place of a device.
type function struct {
	pci  string   // its address, "" if it is not on a PCI bus
	path []string // the root and the bridges above it
	node int      // -1 unknown
}

// pci returns the PCI function of a device, or the one that it is behind, as a virtio device is behind its
// function.
func (t tree) pci(device string) function {
	none := function{node: -1}
	real, err := filepath.EvalSymlinks(t.path(device))
	if err != nil {
		return none
	}
	for dir := real; len(dir) > len(string(t)); dir = filepath.Dir(dir) {
		name := filepath.Base(dir)
		if !address().MatchString(name) {
			continue
		}
		f := function{pci: name, node: -1}
		if content, err := os.ReadFile(filepath.Join(dir, "numa_node")); err == nil {
			f.node = max(number(strings.TrimSpace(string(content))), -1)
		}
		for above := filepath.Dir(dir); len(above) > len(string(t)); above = filepath.Dir(above) {
			bridge := filepath.Base(above)
			if !address().MatchString(bridge) && !root().MatchString(bridge) {
				break
			}
			f.path = append(f.path, bridge)
		}
		slices.Reverse(f.path)
		return f
	}
	return none
}

// root matches the name of a PCI host bridge.
var root = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`) })

// sortedNumbers returns the names that are numbers, in their order.
func sortedNumbers(names []string) []int {
	var numbers []int
	for _, name := range names {
		if n := number(name); n >= 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}
