package probe

import (
	"fmt"
	"iter"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"gorun/topology"
)

// nodes returns the NUMA nodes, none where the kernel does not report them.
func nodes(t tree) []topology.Node {
	const dir = "sys/devices/system/node"
	var nodes []topology.Node
	for _, name := range t.names(dir) {
		text, isNode := strings.CutPrefix(name, "node")
		id := number(text)
		if !isNode || id < 0 {
			continue
		}
		node := layoutOf(t, t.text(path.Join(dir, name, "cpulist")))
		node.ID, node.MemBytes = id, -1
		total := field(t.text(path.Join(dir, name, "meminfo")), fmt.Sprintf("Node %d MemTotal", id))
		if bytes := kilobytes(total); bytes > 0 {
			node.MemBytes = bytes
		}
		for _, distance := range strings.Fields(t.text(path.Join(dir, name, "distance"))) {
			node.Distance = append(node.Distance, number(distance))
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b topology.Node) int { return a.ID - b.ID })
	return nodes
}

// kilobytes parses "131841132 kB" into bytes, -1 for another format.
func kilobytes(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>10 {
		return -1
	}
	return n << 10
}

// CPUs returns how many CPUs this process can keep busy on the machine whose files are below root, -1 if that is unknown.
func CPUs(root string) int {
	t := tree(root)
	return usableCPUs(t, len(allowedCPUs(t)))
}

// usableCPUs returns how many CPUs this process can keep busy: the number it may run on, or less if its
// control group gets less CPU time.
func usableCPUs(t tree, cpus int) int {
	if cpus == 0 {
		return -1
	}
	if q := Quota(string(t), "self"); q > 0 {
		cpus = min(cpus, max(1, int(math.Ceil(q))))
	}
	return cpus
}

// Quota returns how many CPUs' time the control groups of a process, "self" or a number, allow it, 0 for no limit.
func Quota(root, process string) (least float64) {
	t := tree(root)
	for dir := range ControlGroups(root, process, "cpu") {
		quota, period, _ := strings.Cut(t.text(path.Join(dir, "cpu.max")), " ")
		if quota == "" {
			quota, period = t.text(path.Join(dir, "cpu.cfs_quota_us")), t.text(path.Join(dir, "cpu.cfs_period_us"))
		}
		if q, p := number(quota), number(period); q > 0 && p > 0 { // no limit is "max" or -1
			if ratio := float64(q) / float64(p); least == 0 || ratio < least {
				least = ratio
			}
		}
	}
	return least
}

// allowedCPUs returns the CPUs that this process may run on.
func allowedCPUs(t tree) []int {
	cpus := parseList(field(t.text("proc/self/status"), "Cpus_allowed_list"))
	if len(cpus) == 0 {
		cpus = parseList(t.text("sys/devices/system/cpu/online"))
	}
	return cpus
}

// usableMemory returns the machine's memory, or the limit of the control group if that is less.
func usableMemory(t tree) int64 {
	total := kilobytes(field(t.text("proc/meminfo"), "MemTotal"))
	for dir := range ControlGroups(string(t), "self", "memory") {
		for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
			limit, err := strconv.ParseInt(t.text(path.Join(dir, name)), 10, 64) // no limit is "max", or huge
			if err == nil && limit > 0 && (limit < total || total < 0 && limit < 1<<60) {
				total = limit
			}
		}
	}
	return total
}

// ControlGroups yields the directories, below root, of a process's control group and of all above it, the nearest
// first, for a controller, in the unified hierarchy and in the older one. In a container the group's own path
// is often not there, but its limits are at the top.
func ControlGroups(root, process, controller string) iter.Seq[string] {
	t := tree(root)
	return func(yield func(string) bool) {
		for line := range strings.Lines(t.text("proc/" + process + "/cgroup")) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) != 3 {
				continue
			}
			top := "sys/fs/cgroup"
			if parts[0] != "0" || parts[1] != "" {
				if !slices.Contains(strings.Split(parts[1], ","), controller) {
					continue
				}
				top = path.Join(top, controller) // also a link to "cpu,cpuacct"
			} else if t.has("sys/fs/cgroup/unified") {
				top = "sys/fs/cgroup/unified"
			}
			group := path.Clean("/" + parts[2]) // so that ".." does not lead outside
			for {
				if !yield(path.Join(top, group)) {
					return
				}
				if group == "/" {
					break
				}
				group = path.Dir(group)
			}
		}
	}
}

// processor returns the model name that the first CPU reports.
func processor(t tree) topology.Processor {
	info := t.text("proc/cpuinfo")
	return topology.Processor{Vendor: field(info, "vendor_id"), Family: number(field(info, "cpu family")), Model: number(field(info, "model"))}
}

// platform names the machine's platform: a hypervisor, a cloud, "baremetal", or "" if that is not clear.
func platform(t tree) string {
	const dmi = "sys/class/dmi/id/"
	vendor, product := t.text(dmi+"sys_vendor"), t.text(dmi+"product_name")
	serial := t.text(dmi + "product_serial") // only root may read it
	if strings.HasPrefix(vendor, "VMware") || strings.HasPrefix(product, "VMware") || strings.HasPrefix(serial, "VMware-") {
		return "vmware"
	}
	for _, known := range []struct{ vendor, product, platform string }{
		{"Amazon EC2", "", "ec2"},
		{"Google", "Google Compute Engine", "gce"},
		{"Microsoft Corporation", "Virtual Machine", "hyperv"},
		{"QEMU", "", "kvm"},
		{"Red Hat", "KVM", "kvm"},
		{"", "KVM", "kvm"},
		{"Nutanix", "AHV", "nutanix"},
		{"OpenStack Foundation", "", "kvm"},
		{"Xen", "", "xen"},
		{"innotek GmbH", "", "virtualbox"},
		{"Parallels", "", "parallels"},
		{"BHYVE", "", "bhyve"},
	} {
		if strings.HasPrefix(vendor, known.vendor) && strings.Contains(product, known.product) {
			if known.platform == "ec2" && strings.Contains(product, ".metal") {
				return "baremetal"
			}
			return known.platform
		}
	}
	if t.text("sys/hypervisor/type") == "xen" {
		return "xen"
	}
	for _, device := range t.names("sys/bus/pci/devices") { // where DMI is hidden
		if t.text(path.Join("sys/bus/pci/devices", device, "vendor")) == "0x15ad" {
			return "vmware"
		}
	}
	flags := strings.Fields(field(t.text("proc/cpuinfo"), "flags")) // on x86 a flag shows that there is a hypervisor
	switch {
	case slices.Contains(flags, "hypervisor"):
		return "vm"
	case vendor != "" && len(flags) > 0:
		return "baremetal"
	}
	return ""
}
