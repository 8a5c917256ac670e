package tcp

import "syscall"

// LeastPacket is what every network carries over IPv4, with headers, in bytes.
const LeastPacket = 576

// SmallSegments is for the Control of a [net.Dialer] or a [net.ListenConfig]: their connections send no larger packets than LeastPacket,
// and are sent none. It is for connections that carry little, so that they work where a network loses large packets without a
// word.
func SmallSegments(_, _ string, c syscall.RawConn) error {
	var err error
	if control := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, LeastPacket-20-20)
	}); control != nil {
		return control
	}
	return err
}
