package measure

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// unfragmented has a socket send packets whole or not at all, whatever the kernel knows about the path.
func unfragmented(network, _ string, c syscall.RawConn) (err error) {
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if strings.HasSuffix(network, "6") {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	if ctl := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) }); ctl != nil {
		return ctl
	}
	return err
}
