// Package topology describes hosts (NUMA nodes, NICs, GPUs) and decides from such descriptions, without any I/O, in
// which order the ring visits the hosts and where on a host ranks run.
//
// The model is a Host per machine and an Edge per measured pair of hosts. On it work:
//
//   - Order and OrderBy, which find the ring; the fewer crossings between racks, ESXi hosts and networks the better, as
//     long as the slowest edge stays fast (order.go states the criteria, search.go and exact.go find the ring);
//   - Pays, which decides whether a running job should change its ring;
//   - Rails and WithSums, for hosts with several networks;
//   - Worth and Rounds, which select the edges to measure, and at the same time;
//   - Bind, which assigns CPUs to ranks and to the engine;
//   - Together and Duplicates, which find hosts on one machine, and machines that look the same.
//
// Results explain themselves: a Ring has a reason for every edge. An unknown fact is -1 or empty, and no function
// guesses one.
package topology

// Host is what one machine reports about itself. -1 means unknown, never node 0. The names in JSON are stable, for
// users' programs; those in msgpack are only for daemons of one version.
type Host struct {
	Name     string `msgpack:"name" json:"name"`         // as in the host list
	Hostname string `msgpack:"hostname" json:"hostname"` // the machine's own name
	Platform string `msgpack:"platform" json:"platform"` // "vmware", "kvm", "baremetal", … or ""
	// Hypervisor is the signature in the processor's CPUID leaf, such as "VMwareVMware", and Hardware the version of
	// the virtual hardware, "20" for vSphere 8; "" if there is none or it is unknown.
	Hypervisor string `msgpack:"hypervisor" json:"hypervisor"`
	Hardware   string `msgpack:"hardware" json:"hardware"`
	// Identity identifies the machine as long as it keeps its first network card, also when it moves or gets more
	// cards. Without any card, as in a container, it changes with every boot. System identifies the installation: two
	// machines with the same one are clones of one image.
	Identity string `msgpack:"identity" json:"identity"`
	System   string `msgpack:"system" json:"system"`
	// Session is a random number that VMware assigns to a virtual machine, a new one after each move, suspension,
	// restart or hot-plug: while it is unchanged, the machine is on the same ESXi host. "" if unknown.
	Session string `msgpack:"session" json:"session,omitempty"`
	Kernel  string `msgpack:"kernel" json:"kernel"`
	Arch    string `msgpack:"arch" json:"arch"`
	// Processor is the model that x86 processors report.
	Processor Processor `msgpack:"processor" json:"processor"`
	CPUs      int       `msgpack:"cpus" json:"cpus"`          // usable by this process (affinity and cgroup limits)
	Usable    []int     `msgpack:"usable" json:"usable_cpus"` // the CPUs it may run on; empty if unknown
	MemBytes  int64     `msgpack:"mem" json:"mem_bytes"`
	Nodes     []Node    `msgpack:"nodes" json:"nodes"`
	NICs      []NIC     `msgpack:"nics" json:"nics"`
	// Data is the name of the NIC that carries data unless the user chooses others: the one with the address that other
	// hosts use. "" if unknown.
	Data string `msgpack:"data" json:"data_nic,omitempty"`
	// DataRDMA is the device that carries data in its place, between hosts of a job that have one; "" for none.
	DataRDMA string `msgpack:"data_rdma" json:"-"`
	RDMA     []RDMA `msgpack:"rdma" json:"rdma"`
	GPUs     []GPU  `msgpack:"gpus" json:"gpus"`
	Switches int    `msgpack:"nvswitches" json:"nvswitches"` // NVSwitches of this machine
	// Labels are set by an administrator or the platform: "rack", "esxi", "zone".
	Labels map[string]string `msgpack:"labels" json:"labels,omitempty"`
	// LabelSources are the sources of labels: "guestinfo" of the virtual machine, a "topology file", or the source that
	// the file names.
	LabelSources map[string]string `msgpack:"label_sources" json:"label_sources,omitempty"`
}

// Processor is a kind of processor: "GenuineIntel", 6, 143.
type Processor struct {
	Vendor string `msgpack:"vendor" json:"vendor"` // "" unknown
	Family int    `msgpack:"family" json:"family"` // -1 unknown
	Model  int    `msgpack:"model" json:"model"`   // -1 unknown
}

// Node is a NUMA node.
type Node struct {
	ID       int     `msgpack:"id" json:"id"`
	CPUs     []int   `msgpack:"cpus" json:"cpus"`
	MemBytes int64   `msgpack:"mem" json:"mem_bytes"`
	Distance []int   `msgpack:"distance" json:"distance"` // to each node, in the order of Host.Nodes
	Socket   int     `msgpack:"socket" json:"socket"`     // of its first CPU, -1 unknown
	Caches   []Cache `msgpack:"caches" json:"caches"`
	Cores    [][]int `msgpack:"cores" json:"cores"` // CPUs grouped by core; empty if unknown
}

// Cache describes the caches of one kind that serve the CPUs of a node.
type Cache struct {
	Level int    `msgpack:"level" json:"level"`
	Type  string `msgpack:"type" json:"type"`   // "Data", "Instruction", "Unified"
	Bytes int64  `msgpack:"bytes" json:"bytes"` // of one cache
	Count int    `msgpack:"count" json:"count"`
}

// NIC is a network interface that can carry data.
type NIC struct {
	Name   string   `msgpack:"name" json:"name"`
	Driver string   `msgpack:"driver" json:"driver"`             // "vmxnet3", "virtio_net", "mlx5_core", "veth", …
	Speed  int      `msgpack:"speed" json:"speed_mbit"`          // Mbit/s, -1 unknown
	Given  bool     `msgpack:"told" json:"speed_told,omitempty"` // the topology file gives the speed, not the NIC
	MTU    int      `msgpack:"mtu" json:"mtu"`
	Node   int      `msgpack:"node" json:"node"` // NUMA node, -1 unknown
	Queues int      `msgpack:"queues" json:"queues"`
	PCI    string   `msgpack:"pci" json:"pci"`
	Path   []string `msgpack:"path" json:"pci_path"` // the root and the bridges above it: "pci0000:80", "0000:80:01.0"
	VF     bool     `msgpack:"vf" json:"vf"`         // a virtual function of a card that is visible here
	Lower  []string `msgpack:"lower" json:"lower"`   // the interfaces that a bond, VLAN or bridge consists of
	MAC    string   `msgpack:"mac" json:"mac"`
	Up     bool     `msgpack:"up" json:"up"`
	Addrs  []string `msgpack:"addrs" json:"addrs"` // CIDR notation
}

// Nominal reports whether the NIC reports this speed whatever the real one is.
func (n NIC) Nominal() bool { return !n.Given && (n.Driver == "vmxnet3" || n.Driver == "veth") }

// RDMA is a device for remote direct memory access.
type RDMA struct {
	Name   string `msgpack:"name" json:"name"`
	Driver string `msgpack:"driver" json:"driver"` // "mlx5_core", "vmw_pvrdma", "rxe", …
	PCI    string `msgpack:"pci" json:"pci"`
	Node   int    `msgpack:"node" json:"node"`
	NIC    string `msgpack:"nic" json:"nic"` // the network interface of the same card, "" if unknown
	Ports  []Port `msgpack:"ports" json:"ports"`
}

// Port is a port of an RDMA device.
type Port struct {
	Number int    `msgpack:"number" json:"number"`
	Active bool   `msgpack:"active" json:"active"`
	Speed  int    `msgpack:"speed" json:"speed_mbit"` // Mbit/s, -1 unknown
	Link   string `msgpack:"link" json:"link"`        // "InfiniBand", "Ethernet"
	GIDs   []GID  `msgpack:"gids" json:"gids"`
}

// GID is an address of a port.
type GID struct {
	Index int    `msgpack:"index" json:"index"`
	Type  string `msgpack:"type" json:"type"` // "IB/RoCE v1", "RoCE v2"
	GID   string `msgpack:"gid" json:"gid"`
}

// GPU is an accelerator.
type GPU struct {
	Index    int      `msgpack:"index" json:"index"`
	UUID     string   `msgpack:"uuid" json:"uuid"`
	Name     string   `msgpack:"name" json:"name"`
	PCI      string   `msgpack:"pci" json:"pci"`
	Path     []string `msgpack:"path" json:"pci_path"`
	Node     int      `msgpack:"node" json:"node"`
	MemBytes int64    `msgpack:"mem" json:"mem_bytes"` // -1 unknown
	// Mode is how the machine owns it: "none" (exclusively), "passthrough", "vgpu", or "" unknown; Profile is a vGPU's,
	// such as "40C" or, on a slice of a card, "3-20C"; Licence is the state that a vGPU's driver reports.
	Mode    string `msgpack:"mode" json:"mode"`
	Profile string `msgpack:"profile" json:"profile"`
	Licence string `msgpack:"licence" json:"licence"`
	MIG     []MIG  `msgpack:"mig" json:"mig"`
	// Links are its connections to each GPU, in order, in the terms of nvidia-smi topo: X itself, NV# over that many
	// NVLinks, PIX, PXB, PHB, NODE, SYS; "" unknown.
	Links []string `msgpack:"links" json:"links"`
}

// MIG is a slice of a GPU.
type MIG struct {
	UUID    string `msgpack:"uuid" json:"uuid"`
	Profile string `msgpack:"profile" json:"profile"` // "3g.20gb"
}

// Edge is a measurement from one host to another.
type Edge struct {
	From, To  int     // indices into the host list
	RTT       float64 // seconds, 0 unknown
	Bandwidth float64 // bytes per second, 0 unknown
	InJob     bool    // measured by a job, on its own traffic
	// Blocked means that the measurement failed: data should avoid this edge.
	Blocked bool
	// Rail is the network that was measured, such as "10.0.0.0/24"; "" for all networks together.
	Rail string
}

// Ring is an order of hosts for data, with the reason for every edge.
type Ring struct {
	Order []int    // Order[i] is followed by Order[i+1]; indices into the host list
	Why   []string // Why[i] explains the edge Order[i] → Order[i+1]
}
