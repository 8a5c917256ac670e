package probe

import (
	"path"
	"strconv"
	"strings"

	"gorun/topology"
)

// mostGIDs bounds how many addresses of a port are listed; tables have 256 entries, most of them empty.
const mostGIDs = 16

// rdma returns the RDMA devices. The driver identifies a device; its name does not, because udev changes it.
func rdma(t tree) []topology.RDMA {
	const dir = "sys/class/infiniband"
	devices := []topology.RDMA{}
	for _, name := range t.names(dir) {
		at := path.Join(dir, name)
		where := t.pci(path.Join(at, "device"))
		d := topology.RDMA{Name: name, Driver: t.target(path.Join(at, "device/driver")), PCI: where.pci, Node: where.node}
		for _, port := range t.names(path.Join(at, "ports")) {
			d.Ports = append(d.Ports, readPort(t, path.Join(at, "ports", port), number(port)))
		}
		d.NIC = paired(t, at)
		if parent := t.text(path.Join(at, "parent")); d.PCI == "" && parent != "" { // a software device over an interface
			if d.NIC = parent; d.Driver == "" {
				d.Driver = "rxe"
			}
			d.Node = place(t, parent, 0).node
		}
		devices = append(devices, d)
	}
	return devices
}

// paired returns the network interface beside a device: the one that has its addresses; else an interface of the same
// PCI function; else one of the same card, as VMware's PVRDMA is the second function of a vmxnet3's card.
func paired(t tree, device string) string {
	for _, port := range t.names(path.Join(device, "ports")) {
		dir := path.Join(device, "ports", port, "gid_attrs/ndevs")
		for _, index := range t.names(dir) {
			if nic := t.text(path.Join(dir, index)); nic != "" {
				return nic
			}
		}
	}
	for _, nic := range t.names(path.Join(device, "device/net")) {
		return nic
	}
	card, _, onPCI := strings.Cut(t.pci(path.Join(device, "device")).pci, ".")
	for _, nic := range t.names(netDir) {
		if other, _, _ := strings.Cut(t.pci(path.Join(netDir, nic, "device")).pci, "."); onPCI && other == card {
			return nic
		}
	}
	return ""
}

func readPort(t tree, dir string, n int) topology.Port {
	port := topology.Port{Number: n, Active: strings.HasSuffix(t.text(path.Join(dir, "state")), "ACTIVE"),
		Speed: -1, Link: t.text(path.Join(dir, "link_layer"))}
	gigabits, _, _ := strings.Cut(t.text(path.Join(dir, "rate")), " ") // "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)"
	if rate, err := strconv.ParseFloat(gigabits, 64); err == nil && rate > 0 && rate < 1e6 {
		port.Speed = int(rate * 1000)
	}
	for _, index := range sortedNumbers(t.names(path.Join(dir, "gids"))) {
		name := strconv.Itoa(index)
		gid := t.text(path.Join(dir, "gids", name))
		if strings.Trim(gid, "0:") == "" || strings.Trim(gid, "fe80:") == "" {
			continue // an empty entry
		}
		if len(port.GIDs) == mostGIDs {
			break
		}
		port.GIDs = append(port.GIDs, topology.GID{Index: index, Type: t.text(path.Join(dir, "gid_attrs/types", name)), GID: gid})
	}
	return port
}
