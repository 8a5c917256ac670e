package tcp

import "syscall"

// LeastPacket is what every network carries over IPv4, with headers, in bytes.
const LeastPacket = 576

// SmallSegments is for the Control of a [net.Dialer] or a [net.ListenConfig]: neither end of their connections sends
// larger packets than LeastPacket (20 bytes more over IPv6). Connections that carry little then work where a network
// silently loses large packets.
func SmallSegments(_, _ string, c syscall.RawConn) error {
	var err error
	if control := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, LeastPacket-20-20)
	}); control != nil {
		return control
	}
	return err
}
