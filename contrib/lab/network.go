//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ip runs lines of ip(8) in the network namespace of a process.
func (l *Lab) ip(pid int, lines ...string) error {
	return inNetworkOf(pid, "ip", lines)
}

// inNetworkOf runs a batch of ip or tc commands in the network namespace of a process.
func inNetworkOf(pid int, tool string, lines []string) error {
	path, err := findTool(tool)
	if err != nil {
		return err
	}
	return enter(pid, unix.CLONE_NEWNET, func() error {
		cmd := exec.Command(path, "-batch", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", tool, strings.Join(lines, "; "), err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// Cut takes the host's link down, as if its cable were pulled.
func (h *LabHost) Cut() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.lab.ip(h.lab.rackPID, "link set "+h.port+" down"); err != nil {
		return fmt.Errorf("cut %s: %w", h.name, err)
	}
	return nil
}

// Heal takes the host's link up again.
func (h *LabHost) Heal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.lab.ip(h.lab.rackPID, "link set "+h.port+" up"); err != nil {
		return fmt.Errorf("heal %s: %w", h.name, err)
	}
	return nil
}

// SetAddress gives the host another address in the lab's network, and all hosts the new table of names. Nothing closes
// connections to the old address. A host that is off has the new one when it boots.
func (h *LabHost) SetAddress(address netip.Addr) error {
	if !network.Contains(address) {
		return fmt.Errorf("set address of %s: %s is outside of %s", h.name, address, network)
	}
	if h.Running() {
		pid, err := h.runningPID()
		if err == nil {
			err = h.lab.ip(pid, "address flush dev eth0 scope global",
				fmt.Sprintf("address add %s dev eth0", netip.PrefixFrom(address, network.Bits())))
		}
		if err != nil {
			return fmt.Errorf("set address of %s: %w", h.name, err)
		}
	}
	h.address = address
	return h.lab.writeHostsFile()
}

// Link is how good a host's link is; a zero field is without limit.
type Link struct {
	Rate  int64         // bits per second, each way
	Delay time.Duration // added to each packet, each way; between two hosts those of both add up
	Loss  float64       // share of packets lost, each way, 0 to 1
}

// ErrNoNetem is returned by SetLink for a delay or loss where the kernel has no netem.
var ErrNoNetem = errors.New("this kernel cannot delay or lose packets: it has no netem (CONFIG_NET_SCH_NETEM)")

// SetLink makes the host's link slower or worse. It does not affect the bridge, so two hosts with fast
// links are fast whatever links the others have.
func (h *LabHost) SetLink(link Link) error {
	pid, err := h.runningPID()
	if err != nil {
		return fmt.Errorf("set link: %w", err)
	}
	// Both ends of the cable: the host's sending and receiving side.
	for _, end := range []struct {
		pid    int
		device string
	}{{pid, "eth0"}, {h.lab.rackPID, h.port}} {
		err := inNetworkOf(end.pid, "tc", []string{link.qdisc(end.device)})
		if err != nil && (link.Delay != 0 || link.Loss != 0) && strings.Contains(err.Error(), "qdisc kind is unknown") {
			err = ErrNoNetem
		}
		if err != nil {
			return fmt.Errorf("set link of %s: %w", h.name, err)
		}
	}
	return nil
}

// SetPath gives two hosts a cable of their own with a rate in bits per second, for everything that they send each
// other. Two hosts can have one such cable.
func (l *Lab) SetPath(a, b *LabHost, rate int64) error {
	return l.cable(a, b, rate, func(from, to *LabHost, device string) string {
		return fmt.Sprintf("route add %s/32 dev %s src %s", to.address, device, from.address)
	})
}

// AddNIC gives two hosts a cable of their own and addresses in a network of their own at its ends, the first and
// second of the prefix.
func (l *Lab) AddNIC(a, b *LabHost, network netip.Prefix, rate int64) error {
	address := network.Masked().Addr()
	return l.cable(a, b, rate, func(_, _ *LabHost, device string) string {
		address = address.Next()
		return fmt.Sprintf("address add %s dev %s", netip.PrefixFrom(address, network.Bits()), device)
	})
}

// AddNetwork gives all hosts but the launcher a second NIC, eth1, with such a link to a bridge that joins them: hostN
// has the N-th address of the prefix. A host that boots again does not have it any more.
func (l *Lab) AddNetwork(network netip.Prefix, link Link) error {
	err := l.ip(l.rackPID, "link add lab1 type bridge forward_delay 0", "link set lab1 up")
	for i, h := range l.Hosts() {
		pid, other := h.pid, fmt.Sprintf("other%d", i+1)
		if err == nil {
			err = l.ip(l.rackPID, fmt.Sprintf("link add %s type veth peer name eth1 netns %d", other, pid), fmt.Sprintf("link set %s master lab1 up", other))
		}
		if err == nil {
			err = l.ip(pid, fmt.Sprintf("address add %s dev eth1", netip.PrefixFrom(h.addressIn(network), network.Bits())), "link set eth1 up")
		}
		if err == nil {
			err = errors.Join(inNetworkOf(pid, "tc", []string{link.qdisc("eth1")}), inNetworkOf(l.rackPID, "tc", []string{link.qdisc(other)}))
		}
	}
	if err != nil {
		return fmt.Errorf("add network %s: %w", network, err)
	}
	return nil
}

// addressIn is the host's address in a network of AddNetwork.
func (h *LabHost) addressIn(network netip.Prefix) netip.Addr {
	address := network.Masked().Addr()
	for _, other := range h.lab.Hosts() {
		if address = address.Next(); other == h {
			break
		}
	}
	return address
}

// cable connects two hosts by a cable; each end is named after the other host. A line of ip(8) configures each end.
func (l *Lab) cable(a, b *LabHost, rate int64, configure func(from, to *LabHost, device string) string) error {
	ends := [2]*LabHost{a, b}
	var pids [2]int
	var devices [2]string
	for i, h := range ends {
		pid, err := h.runningPID()
		if err != nil {
			return fmt.Errorf("lay cable: %w", err)
		}
		pids[i], devices[i] = pid, "to-"+ends[1-i].name
	}
	err := l.ip(l.rackPID, fmt.Sprintf("link add %s netns %d type veth peer name %s netns %d", devices[0], pids[0], devices[1], pids[1]))
	for i, h := range ends {
		if err == nil {
			err = l.ip(pids[i], "link set "+devices[i]+" up")
		}
		if err == nil {
			err = l.ip(pids[i], configure(h, ends[1-i], devices[i]))
		}
		if err == nil {
			err = inNetworkOf(pids[i], "tc", []string{Link{Rate: rate}.qdisc(devices[i])})
		}
	}
	if err != nil {
		return fmt.Errorf("lay cable between %s and %s: %w", a.name, b.name, err)
	}
	return nil
}

// qdisc is the tc(8) command for one end of a link.
func (k Link) qdisc(device string) string {
	const prefix = "qdisc replace dev "
	switch {
	case k.Delay != 0 || k.Loss != 0:
		// The queue holds the packets under way: 100 ms of full-size packets at 10 Gbit/s.
		line := prefix + device + " root netem limit 100000"
		if k.Delay != 0 {
			line += fmt.Sprintf(" delay %dus", k.Delay.Microseconds())
		}
		if k.Loss != 0 {
			line += " loss " + strconv.FormatFloat(100*k.Loss, 'f', -1, 64) + "%"
		}
		if k.Rate != 0 {
			line += fmt.Sprintf(" rate %dbit", k.Rate)
		}
		return line
	case k.Rate != 0:
		// The bucket must hold the traffic of a timer tick (4 ms at 250 Hz), and one large segment.
		burst := max(k.Rate/8/250, 128<<10)
		return fmt.Sprintf("%s%s root tbf rate %dbit burst %d latency 50ms", prefix, device, k.Rate, burst)
	default:
		return prefix + device + " root pfifo"
	}
}
