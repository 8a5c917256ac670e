package probe

import (
	"path"
	"slices"
	"strings"

	"gorun/topology"
)

const netDir = "sys/class/net"

// Types of link layer that carry data between machines, from the kernel's if_arp.h.
const (
	ethernet   = 1
	infiniband = 32
)

// treeNICs returns the interfaces that a tree of files has, without addresses.
func treeNICs(t tree) []topology.NIC {
	nics := []topology.NIC{}
	for _, name := range t.names(netDir) {
		if !carriesData(t, name) {
			continue
		}
		if nic := readNIC(t, name); !idle(t, nic) {
			nics = append(nics, nic)
		}
	}
	return nics
}

// idle reports whether an interface has no lower interface and is not in use, as when a module has just created it.
func idle(t tree, nic topology.NIC) bool {
	return !nic.Up && !t.has(path.Join(netDir, nic.Name, "device")) && !stacked(t, nic.Name)
}

// carriesData reports whether an interface leads to other machines, and not only to containers or virtual machines on
// this one, or nowhere.
func carriesData(t tree, name string) bool {
	dir := path.Join(netDir, name)
	if kind := t.number(path.Join(dir, "type")); kind != ethernet && kind != infiniband {
		return false // loopback, tunnels
	}
	physical := func(name string) bool { return t.has(path.Join(netDir, name, "device")) }
	if t.has(path.Join(dir, "bridge")) {
		// A host's address can be on a bridge, but then a real interface is part of it.
		for _, port := range t.names(path.Join(dir, "brif")) {
			if physical(port) || stacked(t, port) {
				return true
			}
		}
		return false
	}
	// A veth or tap that is part of a bridge is the near end of a container's or virtual machine's interface.
	return !t.has(path.Join(dir, "brport")) || physical(name) || stacked(t, name)
}

// stacked reports whether an interface is made of others, as a bond or VLAN.
func stacked(t tree, name string) bool { return len(lowers(t, name)) > 0 }

// lowers returns the interfaces that this one is made of.
func lowers(t tree, name string) []string {
	var lower []string
	for _, entry := range t.names(path.Join(netDir, name)) {
		if l, ok := strings.CutPrefix(entry, "lower_"); ok {
			lower = append(lower, l)
		}
	}
	return lower
}

func readNIC(t tree, name string) topology.NIC {
	dir := path.Join(netDir, name)
	nic := topology.NIC{
		Name:   name,
		Driver: t.target(path.Join(dir, "device/driver")),
		Speed:  t.number(path.Join(dir, "speed")),
		MTU:    t.number(path.Join(dir, "mtu")),
		MAC:    t.text(path.Join(dir, "address")),
		Node:   -1,
		Queues: -1,
		Up:     isUp(t, dir),
	}
	if nic.Driver == "" {
		nic.Driver = software(t, name)
	}
	// vmxnet3 reports 10000 whatever is behind it: a nominal speed. A driver that does not know reports -1.
	if nic.Speed <= 0 || nic.Speed >= 1<<31-1 {
		nic.Speed = -1
	}
	if queues := len(slices.DeleteFunc(t.names(path.Join(dir, "queues")), func(queue string) bool {
		return !strings.HasPrefix(queue, "rx-")
	})); queues > 0 {
		nic.Queues = queues
	}
	where := place(t, name, 0)
	nic.PCI, nic.Path, nic.Node = where.pci, where.path, where.node
	nic.VF = t.has(path.Join(dir, "device/physfn"))
	nic.Lower = lowers(t, name)
	return nic
}

// mostStacked bounds how deeply interfaces are stacked: a VLAN of a bond of ports has depth three.
const mostStacked = 8

// place returns the PCI function and node of an interface. A stacked interface has no PCI address, and is on a node if
// all of its lower interfaces are.
func place(t tree, name string, depth int) function {
	device := path.Join(netDir, name, "device")
	if t.has(device) || depth == mostStacked {
		return t.pci(device)
	}
	made := function{node: -1}
	for i, lower := range lowers(t, name) {
		where := place(t, lower, depth+1)
		if i > 0 && where.node != made.node {
			return function{node: -1}
		}
		made.node = where.node
	}
	return made
}

// isUp reports whether packets can pass. Interfaces without a carrier of their own cannot report it, and are
// up if they were set up.
func isUp(t tree, dir string) bool {
	switch t.text(path.Join(dir, "operstate")) {
	case "up":
		return true
	case "unknown":
		flags := t.text(path.Join(dir, "flags")) // hexadecimal; the lowest bit is IFF_UP
		return flags != "" && strings.ContainsRune("13579bdf", rune(flags[len(flags)-1]))
	}
	return false
}

// software names the kind of an interface without a device.
func software(t tree, name string) string {
	dir := path.Join(netDir, name)
	for line := range strings.Lines(t.text(path.Join(dir, "uevent"))) {
		if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			return kind
		}
	}
	// A veth is linked to its other end.
	if link := t.text(path.Join(dir, "iflink")); link != "" && link != t.text(path.Join(dir, "ifindex")) && len(lowers(t, name)) == 0 {
		return "veth"
	}
	return ""
}
