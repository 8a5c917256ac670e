// Package topology describes hosts (NUMA nodes, NICs, GPUs) and decides from such descriptions, without
// any I/O, in which order the ring visits them.
package topology

// Host is what one machine reports about itself. -1 means unknown, never node 0. The names in JSON are for
// users' programs and stay as they are; those in msgpack are between daemons of one version.
type Host struct {
	Name     string `msgpack:"name" json:"name"`         // as in the host list
	Hostname string `msgpack:"hostname" json:"hostname"` // as the machine calls itself
	Platform string `msgpack:"platform" json:"platform"` // "vmware", "kvm", "baremetal", … or ""
	Kernel   string `msgpack:"kernel" json:"kernel"`
	Arch     string `msgpack:"arch" json:"arch"`
	CPUs     int    `msgpack:"cpus" json:"cpus"` // usable by this process (affinity and cgroup limits)
	MemBytes int64  `msgpack:"mem" json:"mem_bytes"`
	Nodes    []Node `msgpack:"nodes" json:"nodes"`
	NICs     []NIC  `msgpack:"nics" json:"nics"`
	GPUs     []GPU  `msgpack:"gpus" json:"gpus"`
	// Labels an administrator gave, or the platform knows: "rack", "esxi", "zone".
	Labels map[string]string `msgpack:"labels" json:"labels,omitempty"`
}

// Node is a NUMA node.
type Node struct {
	ID       int   `msgpack:"id" json:"id"`
	CPUs     []int `msgpack:"cpus" json:"cpus"`
	MemBytes int64 `msgpack:"mem" json:"mem_bytes"`
	Distance []int `msgpack:"distance" json:"distance"` // to each node, in the order of Host.Nodes
}

// NIC is a network interface that can carry data.
type NIC struct {
	Name   string   `msgpack:"name" json:"name"`
	Driver string   `msgpack:"driver" json:"driver"`    // "vmxnet3", "virtio_net", "mlx5_core", "veth", …
	Speed  int      `msgpack:"speed" json:"speed_mbit"` // Mbit/s, -1 unknown
	MTU    int      `msgpack:"mtu" json:"mtu"`
	Node   int      `msgpack:"node" json:"node"` // NUMA node, -1 unknown
	Queues int      `msgpack:"queues" json:"queues"`
	PCI    string   `msgpack:"pci" json:"pci"`
	MAC    string   `msgpack:"mac" json:"mac"`
	Up     bool     `msgpack:"up" json:"up"`
	Addrs  []string `msgpack:"addrs" json:"addrs"` // CIDR notation
}

// GPU is an accelerator.
type GPU struct {
	Index int    `msgpack:"index" json:"index"`
	UUID  string `msgpack:"uuid" json:"uuid"`
	Name  string `msgpack:"name" json:"name"`
	PCI   string `msgpack:"pci" json:"pci"`
	Node  int    `msgpack:"node" json:"node"`
}

// Edge is what was measured from one host to another.
type Edge struct {
	From, To  int     // indices into the host list
	RTT       float64 // seconds, 0 unknown
	Bandwidth float64 // bytes per second, 0 unknown
}

// Ring is an order of hosts for data, with the reason for every edge.
type Ring struct {
	Order []int    // Order[i] is followed by Order[i+1]; indices into the host list
	Why   []string // Why[i] explains the edge Order[i] → Order[i+1]
}
