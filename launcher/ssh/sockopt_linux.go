package ssh

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setSocketOptions bounds how long sent data may stay unacknowledged, where TCP gives up after some 15 minutes, and the
// length of segments.
func setSocketOptions(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// Best effort: a kernel that refuses leaves the keepalive and the usual segments.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unansweredLimit.Milliseconds()))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, segment)
	})
}
