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
	// tries is how often a packet is sent that nobody answers, wait how long each time. Both together are longer than a second,
	// because Linux refuses packets of one host no more often than once in that time when its allowance is used up.
	tries = 5
	wait  = 300 * time.Millisecond
	// closed is a port at which nobody listens: hosts say so of every packet that reaches it.
	closed = 33434
	small  = 100 // bytes of a packet that any network carries
)

// usual sizes of packets: jumbo frames, Ethernet, over PPP and tunnels, what IPv6 guarantees, what is less than that, and what
// every network is to carry over IPv4.
var usual = []int{9000, 8500, 4000, 1500, 1492, 1450, 1400, 1280, 1200, 1100, 1000, 800, 576}

// Path finds out whether packets of so many bytes reach another host unbroken. It returns the most that do, of sizes that are
// usual; 0 if the host answers nothing of the kind, as behind a firewall.
//
// Nobody has to listen there. A packet to a port that is closed is refused by a host that got it; one that a switch drops is
// not. TCP does not notice: connections open, since small packets pass, and then hang.
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

// refuses is true if the host says that it got a packet of so many bytes in all.
func refuses(ctx context.Context, to netip.Addr, bytes int) (bool, error) {
	header := 20 + 8
	if to.Is6() {
		header = 40 + 8
	}
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		// Never in pieces, and whatever was heard of the way before.
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
			return true, nil // of the one before
		case errors.Is(err, unix.EMSGSIZE):
			return false, nil // not even off this host
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
