package facts

// Key is a key of the file, as its documentation shows it.
type Key struct{ In, Name, Value, Meaning string }

// Keys are the keys that a file may have.
var Keys = []Key{
	{"the file", "hosts", "mapping", "facts of hosts, by the names that -H or a hostfile gives them"},
	{"the file", "edges", "list", "measurements between two hosts, as gorun topo --measure --save and --save-topology write them"},
	{"a host", "esxi", "name", "the machine that the virtual machine is on; hosts of one ESXi host stay together in the ring"},
	{"a host", "rack", "name", "its rack"},
	{"a host", "zone", "name", "its zone or site"},
	{"a host", "by", "name", "who knows the labels, such as vCenter; gorun names this source"},
	{"a host", "session", "name", "the session of the virtual machine when the file was written; its labels no longer count after a move"},
	{"a host", "nics", "mapping", "facts of its NICs, by their names"},
	{"a host", "gpus", "mapping", "facts of its GPUs, by their indexes"},
	{"a NIC or GPU", "node", "number", "its NUMA node; -1 for none"},
	{"a NIC or GPU", "speed_mbit", "number", "of a NIC: its speed in Mbit/s"},
	{"an edge", "from", "host", "the host that sends"},
	{"an edge", "to", "host", "the host that receives"},
	{"an edge", "mbit", "number", "bandwidth in Mbit/s"},
	{"an edge", "rtt_us", "number", "round-trip time in microseconds"},
	{"an edge", "by", "job or probe", "what measured it: a job on its own traffic, or gorun topo --measure"},
	{"an edge", "blocked", "true or false", "whether the hosts cannot reach each other"},
	{"an edge", "net", "network", "the network that was measured, such as 10.0.0.0/24, where hosts have several"},
}

// Example is a file that has most keys.
const Example = `hosts:
  host1: {esxi: esx-a, rack: r1}
  host2:
    esxi: esx-b
    rack: r1
    nics:
      ens224: {node: 1, speed_mbit: 25000}
    gpus:
      0: {node: 1}
edges:
  - {from: host1, to: host2, mbit: 9400, rtt_us: 85}
  - {from: host2, to: host1, mbit: 9380, rtt_us: 85}
`
