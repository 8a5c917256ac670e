// Package topology describes hosts (NUMA nodes, NICs, GPUs) and decides from such descriptions, without
// any I/O, in which order the ring visits them.
package topology

// Host is what one machine reports about itself. -1 means unknown, never node 0.
type Host struct {
	Name     string `msgpack:"name"`     // as in the host list
	Hostname string `msgpack:"hostname"` // as the machine calls itself
	Platform string `msgpack:"platform"` // "vmware", "kvm", "baremetal", … or ""
	Kernel   string `msgpack:"kernel"`
	Arch     string `msgpack:"arch"`
	CPUs     int    `msgpack:"cpus"` // usable by this process (affinity and cgroup limits)
	MemBytes int64  `msgpack:"mem"`
	Nodes    []Node `msgpack:"nodes"`
	NICs     []NIC  `msgpack:"nics"`
	GPUs     []GPU  `msgpack:"gpus"`
	// Labels an administrator gave, or the platform knows: "rack", "esxi", "zone".
	Labels map[string]string `msgpack:"labels"`
}

// Node is a NUMA node.
type Node struct {
	ID       int   `msgpack:"id"`
	CPUs     []int `msgpack:"cpus"`
	MemBytes int64 `msgpack:"mem"`
	Distance []int `msgpack:"distance"` // to each node, in the order of Host.Nodes
}

// NIC is a network interface that can carry data.
type NIC struct {
	Name   string   `msgpack:"name"`
	Driver string   `msgpack:"driver"` // "vmxnet3", "virtio_net", "mlx5_core", "veth", …
	Speed  int      `msgpack:"speed"`  // Mbit/s, -1 unknown
	MTU    int      `msgpack:"mtu"`
	Node   int      `msgpack:"node"` // NUMA node, -1 unknown
	Queues int      `msgpack:"queues"`
	PCI    string   `msgpack:"pci"`
	MAC    string   `msgpack:"mac"`
	Up     bool     `msgpack:"up"`
	Addrs  []string `msgpack:"addrs"` // CIDR notation
}

// GPU is an accelerator.
type GPU struct {
	Index int    `msgpack:"index"`
	UUID  string `msgpack:"uuid"`
	Name  string `msgpack:"name"`
	PCI   string `msgpack:"pci"`
	Node  int    `msgpack:"node"`
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
