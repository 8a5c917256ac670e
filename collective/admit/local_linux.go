package admit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// User returns the user whose socket is at the other end of a TCP connection within this host. It fails if that socket
// is closed or not on this host. The kernel tells by the pair of addresses, however many sockets there are.
func User(conn net.Conn) (uid int, err error) {
	uid, err = user(conn.RemoteAddr(), conn.LocalAddr())
	if err != nil {
		return -1, fmt.Errorf("find who connects from %v: %w", conn.RemoteAddr(), err)
	}
	return uid, nil
}

// user asks as linux/sock_diag.h and linux/inet_diag.h say.
func user(from, to net.Addr) (uid int, err error) {
	peer, ok := from.(*net.TCPAddr)
	own, same := to.(*net.TCPAddr)
	if !ok || !same {
		return 0, errors.New("it is not TCP")
	}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	ask := make([]byte, 72) // a netlink header, then struct inet_diag_req_v2
	n := binary.NativeEndian
	n.PutUint32(ask, uint32(len(ask)))
	n.PutUint16(ask[4:], 20) // SOCK_DIAG_BY_FAMILY
	n.PutUint16(ask[6:], unix.NLM_F_REQUEST)
	ask[16], ask[17] = unix.AF_INET, unix.IPPROTO_TCP
	theirs, ours := peer.AddrPort().Addr().Unmap(), own.AddrPort().Addr().Unmap()
	if theirs.Is6() {
		ask[16] = unix.AF_INET6
	}
	n.PutUint32(ask[20:], ^uint32(0)) // in any state
	binary.BigEndian.PutUint16(ask[24:], uint16(peer.Port))
	binary.BigEndian.PutUint16(ask[26:], uint16(own.Port))
	copy(ask[28:], theirs.AsSlice())
	copy(ask[44:], ours.AsSlice())
	n.PutUint64(ask[64:], ^uint64(0)) // with any cookie
	if err := unix.Sendto(s, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096) // a netlink header, then struct inet_diag_msg, with the user and the inode at its end
	size, _, err := unix.Recvfrom(s, answer, 0)
	switch {
	case err != nil:
		return 0, err
	case n.Uint16(answer[4:]) == unix.NLMSG_ERROR:
		return 0, fmt.Errorf("the kernel knows no such socket: %w", unix.Errno(-int32(n.Uint32(answer[16:]))))
	case size < 88 || n.Uint32(answer[84:]) == 0: // to the kernel, root is the user of one that is closed
		return 0, errors.New("the socket is closed")
	}
	return int(n.Uint32(answer[80:])), nil
}

// Local returns a listener that accepts connections of this process's user, or root, on this host. It closes others,
// and calls refused, unread.
func Local(l net.Listener, refused func(error)) net.Listener { return local{l, refused} }

type local struct {
	net.Listener
	refused func(error)
}

func (l local) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := User(conn)
		if err == nil && Allowed(uid) {
			return conn, nil
		}
		if err == nil {
			err = fmt.Errorf("user %d connects from %v", uid, conn.RemoteAddr())
		}
		l.refused(err)
		conn.Close()
	}
}

// Allowed reports whether processes of that user may be ranks of this process's jobs.
func Allowed(uid int) bool { return uid == 0 || uid == os.Getuid() }
