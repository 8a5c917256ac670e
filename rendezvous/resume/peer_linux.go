package resume

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ours reports whether the process at the other end of a unix socket belongs to this process's user.
func ours(conn net.Conn) bool {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var bad error
	if err := raw.Control(func(fd uintptr) { cred, bad = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || bad != nil {
		return false
	}
	return int(cred.Uid) == os.Getuid()
}

// shut refuses new connections, even if other processes hold the listener too.
func shut(l net.Listener) {
	if c, ok := l.(*net.UnixListener); ok {
		if raw, err := c.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
		}
	}
}
