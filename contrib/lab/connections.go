//go:build linux

package lab

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Conn is a TCP connection as its host sees it.
type Conn struct{ Local, Peer netip.AddrPort }

// Connections returns the established connections of the host with others of the lab, without those of ssh.
func (h *LabHost) Connections() ([]Conn, error) {
	return h.connections(func(c Conn) bool { return c.Local.Port() != sshPort && c.Peer.Port() != sshPort })
}

// Logins returns the established ssh connections from the host to others.
func (h *LabHost) Logins() ([]Conn, error) {
	return h.connections(func(c Conn) bool { return c.Peer.Port() == sshPort })
}

func (h *LabHost) connections(wanted func(Conn) bool) ([]Conn, error) {
	out, err := h.ss("state", "established")
	if err != nil {
		return nil, fmt.Errorf("list connections of %s: %w", h.name, err)
	}
	var list []Conn
	for line := range strings.Lines(out) {
		fields := strings.Fields(line) // Recv-Q, Send-Q, local, peer
		if len(fields) < 4 {
			continue
		}
		local, err1 := netip.ParseAddrPort(fields[2])
		peer, err2 := netip.ParseAddrPort(fields[3])
		if c := (Conn{local, peer}); err1 == nil && err2 == nil && !peer.Addr().IsLoopback() && wanted(c) {
			list = append(list, c)
		}
	}
	return list, nil
}

// Reset breaks a connection at both ends, as a firewall that has lost its state does. It returns false if the
// connection was gone, or if the kernel cannot do it (CONFIG_INET_DIAG_DESTROY).
func (h *LabHost) Reset(c Conn) (bool, error) {
	out, err := h.ss("--kill", "src", c.Local.String(), "dst", c.Peer.String())
	if err != nil {
		return false, fmt.Errorf("reset connection of %s: %w", h.name, err)
	}
	return strings.TrimSpace(out) != "", nil
}

// ss runs ss(8) in the network of the host.
func (h *LabHost) ss(args ...string) (string, error) {
	path, err := findTool("ss")
	if err != nil {
		return "", err
	}
	pid, err := h.runningPID()
	if err != nil {
		return "", err
	}
	var out []byte
	err = enter(pid, unix.CLONE_NEWNET, func() error {
		var err error
		out, err = exec.Command(path, append([]string{"-H", "-t", "-n"}, args...)...).Output()
		return err
	})
	return string(out), err
}

// Slow limits what the host sends over one connection, in bits per second; everything else stays as fast as it is.
// There can be one such connection of a host at a time.
func (h *LabHost) Slow(c Conn, rate int64) error {
	pid, err := h.runningPID()
	if err != nil {
		return fmt.Errorf("slow connection: %w", err)
	}
	err = inNetworkOf(pid, "tc", []string{
		"qdisc replace dev eth0 root pfifo", // replaces the qdisc of an earlier call
		"qdisc replace dev eth0 root handle 1: htb",
		fmt.Sprintf("class replace dev eth0 parent 1: classid 1:2 htb rate %dbit quantum 60000", rate),
		fmt.Sprintf("filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip sport %d 0xffff match ip dport %d 0xffff flowid 1:2",
			c.Local.Port(), c.Peer.Port()),
	})
	if err != nil {
		return fmt.Errorf("slow connection of %s: %w", h.name, err)
	}
	return nil
}

// Mute drops everything that the host sends to another one; the other direction still works.
func (h *LabHost) Mute(other *LabHost) error {
	return h.neighbour(other, "replace", "lladdr 02:00:00:00:00:02 nud permanent")
}

// Unmute ends Mute.
func (h *LabHost) Unmute(other *LabHost) error { return h.neighbour(other, "delete", "") }

func (h *LabHost) neighbour(other *LabHost, verb, more string) error {
	pid, err := h.runningPID()
	if err == nil {
		err = h.lab.ip(pid, fmt.Sprintf("neighbour %s %s dev eth0 %s", verb, other.address, more))
	}
	if err != nil {
		return fmt.Errorf("change what %s sends to %s: %w", h.name, other.name, err)
	}
	return nil
}

// Unplug takes the host's own network device down, which the host notices, unlike Cut.
func (h *LabHost) Unplug() error { return h.device("down") }

// Plug takes it up again.
func (h *LabHost) Plug() error { return h.device("up") }

func (h *LabHost) device(state string) error {
	pid, err := h.runningPID()
	if err == nil {
		err = h.lab.ip(pid, "link set eth0 "+state)
	}
	if err != nil {
		return fmt.Errorf("take eth0 of %s %s: %w", h.name, state, err)
	}
	return nil
}
