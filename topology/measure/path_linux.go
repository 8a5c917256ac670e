package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sort"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// tries is how often an unanswered packet is sent, wait how long each time. Together they exceed a second, because
	// Linux, once its allowance is used up, refuses packets from one host at most once a second.
	tries = 5
	wait  = 300 * time.Millisecond
	// closed is an unused port: a host reports every packet that reaches it.
	closed = 33434
	small  = 100 // bytes of a packet that any network carries
)

// usual packet sizes: jumbo frames, Ethernet, PPP and tunnels, the minimum of IPv6, less than that, and the size that
// every IPv4 network must carry.
var usual = []int{9000, 8500, 4000, 1500, 1492, 1450, 1400, 1280, 1200, 1100, 1000, 800, 576}

// Path determines whether packets of the given size reach another host unfragmented. It returns the largest usual size
// that does; 0 if the host does not answer, for example behind a firewall.
//
// No process has to listen there: the host refuses a packet to a closed port, while a packet that a switch drops gets
// no answer. TCP hides the problem: connections open, since small packets pass, and then hang.
func Path(ctx context.Context, to netip.Addr, bytes int) (int, error) {
	if refused, err := refuses(ctx, to, small); !refused || err != nil {
		return 0, err
	}
	if refused, err := refuses(ctx, to, bytes); refused || err != nil {
		return bytes, err
	}
	// A lost size takes more than a second, so Path searches instead of trying all.
	sizes := append(slices.DeleteFunc(slices.Clone(usual), func(n int) bool { return n >= bytes }), small)
	var failed error
	at := sort.Search(len(sizes)-1, func(i int) bool {
		refused, err := refuses(ctx, to, sizes[i])
		failed = cmp.Or(failed, err)
		return refused
	})
	return sizes[at], failed
}

// refuses reports whether the host refused a packet of so many bytes in all.
func refuses(ctx context.Context, to netip.Addr, bytes int) (bool, error) {
	header := 20 + 8
	if to.Is6() {
		header = 40 + 8
	}
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		// Never fragmented, whatever the kernel knows about the path.
		if ctl := c.Control(func(fd uintptr) {
			if to.Is6() {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
			}
		}); ctl != nil {
			return ctl
		}
		return err
	}}
	conn, err := dialer.DialContext(ctx, "udp", netip.AddrPortFrom(to, closed).String())
	if err != nil {
		return false, fmt.Errorf("probe path to %s: %w", to, err)
	}
	defer conn.Close()
	packet, answer := make([]byte, bytes-header), make([]byte, 1)
	for range tries {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		switch _, err := conn.Write(packet); {
		case errors.Is(err, unix.ECONNREFUSED):
			return true, nil // for the previous packet
		case errors.Is(err, unix.EMSGSIZE):
			return false, nil // it did not even leave this host
		case err != nil:
			return false, fmt.Errorf("probe path to %s: %w", to, err)
		}
		conn.SetReadDeadline(time.Now().Add(wait))
		if _, err := conn.Read(answer); errors.Is(err, unix.ECONNREFUSED) {
			return true, nil
		}
	}
	return false, nil
}
