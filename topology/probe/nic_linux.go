package probe

import (
	"net"
	"path"

	"golang.org/x/sys/unix"

	"gorun/topology"
)

// liveNICs returns the interfaces that carry data between machines. In a container, the files in /sys may describe
// another network namespace: they count only for an interface with the same index and hardware address.
func liveNICs(t tree, interfaces []Interface) []topology.NIC {
	if interfaces == nil {
		return treeNICs(t)
	}
	nics := []topology.NIC{}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs := i.usable() // an interface with addresses is in use, even while it is down
		nic := topology.NIC{Name: i.Name, Speed: -1, Node: -1, Queues: -1, Up: i.Flags&net.FlagUp != 0}
		dir := path.Join(netDir, i.Name)
		if t.number(path.Join(dir, "ifindex")) == i.Index && t.text(path.Join(dir, "address")) == i.HardwareAddr.String() {
			if nic = readNIC(t, i.Name); !carriesData(t, i.Name) || idle(t, nic) && len(addrs) == 0 {
				continue
			}
		} else if !nic.Up && len(addrs) == 0 || len(i.HardwareAddr) == 0 { // idle, or a tunnel
			continue
		}
		nic.MTU, nic.MAC = i.MTU, i.HardwareAddr.String()
		if nic.Driver == "" {
			nic.Driver = ethtoolDriver(i.Name)
		}
		nic.Addrs = addrs
		nics = append(nics, nic)
	}
	return nics
}

// usable returns the addresses that other machines can use without naming an interface: all but link-local ones.
func (i Interface) usable() []string {
	var usable []string
	for _, p := range i.Prefixes {
		if !p.Addr().IsLinkLocalUnicast() {
			usable = append(usable, p.String())
		}
	}
	return usable
}

// ethtoolDriver asks the driver for its name, which /sys does not show for a veth whose ends have the same
// index in two namespaces.
func ethtoolDriver(name string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}
