// Package topology describes hosts (NUMA nodes, NICs, GPUs) and decides from such descriptions, without
// any I/O, in which order the ring visits them.
package topology

// Host is what one machine reports about itself. -1 means unknown, never node 0. The names in JSON are for
// users' programs and stay as they are; those in msgpack are between daemons of one version.
type Host struct {
	Name     string `msgpack:"name" json:"name"`         // as in the host list
	Hostname string `msgpack:"hostname" json:"hostname"` // as the machine calls itself
	Platform string `msgpack:"platform" json:"platform"` // "vmware", "kvm", "baremetal", … or ""
	// Hypervisor is what the processor's CPUID leaf says, such as "VMwareVMware", and Hardware the version of
	// the virtual hardware, "20" of vSphere 8; "" where there is none or nobody tells.
	Hypervisor string `msgpack:"hypervisor" json:"hypervisor"`
	Hardware   string `msgpack:"hardware" json:"hardware"`
	// Identity stays the same for as long as it is the same machine and has its first network card, also when it moves or
	// gets more cards; without any card, as in a container, until it is started again. System is the installation's: two
	// machines that have it in common are clones of one image.
	Identity string `msgpack:"identity" json:"identity"`
	System   string `msgpack:"system" json:"system"`
	// Session is a random number that VMware gives a virtual machine, another one after each move, suspension, restart or
	// hot-plug: the same one means that it is still on the same ESXi host. "" if nobody tells.
	Session string `msgpack:"session" json:"session,omitempty"`
	Kernel  string `msgpack:"kernel" json:"kernel"`
	Arch    string `msgpack:"arch" json:"arch"`
	// Processor is what x86 processors say of themselves.
	Processor Processor `msgpack:"processor" json:"processor"`
	CPUs      int       `msgpack:"cpus" json:"cpus"`          // usable by this process (affinity and cgroup limits)
	Usable    []int     `msgpack:"usable" json:"usable_cpus"` // those it may run on; none if it does not know
	MemBytes  int64     `msgpack:"mem" json:"mem_bytes"`
	Nodes     []Node    `msgpack:"nodes" json:"nodes"`
	NICs      []NIC     `msgpack:"nics" json:"nics"`
	// Data is the name of the NIC that data goes over unless the user chooses some: the one that has the address at which
	// others reach the host. "" if that is not known.
	Data     string `msgpack:"data" json:"data_nic,omitempty"`
	RDMA     []RDMA `msgpack:"rdma" json:"rdma"`
	GPUs     []GPU  `msgpack:"gpus" json:"gpus"`
	Switches int    `msgpack:"nvswitches" json:"nvswitches"` // NVSwitches that are this machine's
	// Labels an administrator gave, or the platform knows: "rack", "esxi", "zone".
	Labels map[string]string `msgpack:"labels" json:"labels,omitempty"`
	// LabelSources say who told a label: "guestinfo" of the virtual machine, a "topology file", or whoever that says told it.
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
	Cores    [][]int `msgpack:"cores" json:"cores"` // CPUs that are threads of one core; none if it does not know
}

// Cache is all caches of one kind that the CPUs of a node have.
type Cache struct {
	Level int    `msgpack:"level" json:"level"`
	Type  string `msgpack:"type" json:"type"`   // "Data", "Instruction", "Unified"
	Bytes int64  `msgpack:"bytes" json:"bytes"` // of one
	Count int    `msgpack:"count" json:"count"`
}

// NIC is a network interface that can carry data.
type NIC struct {
	Name   string   `msgpack:"name" json:"name"`
	Driver string   `msgpack:"driver" json:"driver"`             // "vmxnet3", "virtio_net", "mlx5_core", "veth", …
	Speed  int      `msgpack:"speed" json:"speed_mbit"`          // Mbit/s, -1 unknown
	Told   bool     `msgpack:"told" json:"speed_told,omitempty"` // the topology file says the speed, not the NIC
	MTU    int      `msgpack:"mtu" json:"mtu"`
	Node   int      `msgpack:"node" json:"node"` // NUMA node, -1 unknown
	Queues int      `msgpack:"queues" json:"queues"`
	PCI    string   `msgpack:"pci" json:"pci"`
	Path   []string `msgpack:"path" json:"pci_path"` // the root and the bridges above it: "pci0000:80", "0000:80:01.0"
	VF     bool     `msgpack:"vf" json:"vf"`         // a virtual function of a card that can be seen
	Lower  []string `msgpack:"lower" json:"lower"`   // interfaces that a bond, VLAN or bridge is made of
	MAC    string   `msgpack:"mac" json:"mac"`
	Up     bool     `msgpack:"up" json:"up"`
	Addrs  []string `msgpack:"addrs" json:"addrs"` // CIDR notation
}

// Nominal reports whether the speed is one that the NIC says whatever is behind it.
func (n NIC) Nominal() bool { return !n.Told && (n.Driver == "vmxnet3" || n.Driver == "veth") }

// RDMA is a device that moves memory by itself.
type RDMA struct {
	Name   string `msgpack:"name" json:"name"`
	Driver string `msgpack:"driver" json:"driver"` // "mlx5_core", "vmw_pvrdma", "rxe", …
	PCI    string `msgpack:"pci" json:"pci"`
	Node   int    `msgpack:"node" json:"node"`
	NIC    string `msgpack:"nic" json:"nic"` // the network interface beside it, "" if unknown
	Ports  []Port `msgpack:"ports" json:"ports"`
}

// Port is one of an RDMA device.
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
	// Mode is how the machine has it: "none" (its own), "passthrough", "vgpu", or "" unknown; Profile is a
	// vGPU's, such as "40C" or, on a slice of a card, "3-20C"; Licence is what a vGPU's driver says.
	Mode    string `msgpack:"mode" json:"mode"`
	Profile string `msgpack:"profile" json:"profile"`
	Licence string `msgpack:"licence" json:"licence"`
	MIG     []MIG  `msgpack:"mig" json:"mig"`
	// Links say how it reaches each GPU, in their order, as nvidia-smi topo does: X itself, NV# over so many
	// NVLinks, PIX, PXB, PHB, NODE, SYS; "" unknown.
	Links []string `msgpack:"links" json:"links"`
}

// MIG is a slice of a GPU.
type MIG struct {
	UUID    string `msgpack:"uuid" json:"uuid"`
	Profile string `msgpack:"profile" json:"profile"` // "3g.20gb"
}

// Edge is what was measured from one host to another.
type Edge struct {
	From, To  int     // indices into the host list
	RTT       float64 // seconds, 0 unknown
	Bandwidth float64 // bytes per second, 0 unknown
	InJob     bool    // a job measured it, on its own traffic
	// Blocked says that measuring it was tried and failed: no data should go there while there is another way.
	Blocked bool
	// Rail is the network that it is about, such as "10.0.0.0/24"; "" for all that data goes over, together.
	Rail string
}

// Ring is an order of hosts for data, with the reason for every edge.
type Ring struct {
	Order []int    // Order[i] is followed by Order[i+1]; indices into the host list
	Why   []string // Why[i] explains the edge Order[i] → Order[i+1]
	// Rails are the rings that large tensors take at once, each in its network, if that is faster; else all data
	// takes the one ring. Split says why, if there was a choice.
	Rails []RailRing
	Split string
}
