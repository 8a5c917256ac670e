package link

import (
	"math"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vectorReader reads into two buffers with one call.
type vectorReader struct {
	raw syscall.RawConn    // nil: not available
	try func(uintptr) bool // one closure for all reads, so that none allocates
	iov [2][]byte
	n   int
	err error
}

func (v *vectorReader) init(socket syscall.RawConn) { v.raw, v.try = socket, v.attempt }

func (v *vectorReader) read(dst, ahead []byte) (int, error) {
	v.iov = [2][]byte{dst, ahead}
	if err := v.raw.Read(v.try); err != nil {
		return 0, err
	}
	return v.n, v.err
}

func (v *vectorReader) attempt(fd uintptr) bool {
	for {
		if len(v.iov[1]) == 0 {
			v.n, v.err = unix.Read(int(fd), v.iov[0])
		} else {
			v.n, v.err = unix.Readv(int(fd), v.iov[:])
		}
		if v.err != unix.EINTR {
			return v.err != unix.EAGAIN
		}
	}
}

// directWriter returns a function that writes what the socket accepts of two buffers at once, nil if there is none.
func directWriter(socket syscall.RawConn) func(a, b []byte) (int, error) {
	if socket == nil {
		return nil
	}
	w := &socketWriter{raw: socket}
	w.try = w.attempt
	return w.write
}

type socketWriter struct {
	raw syscall.RawConn
	try func(uintptr) bool
	iov [2][]byte
	n   int
	err error
}

func (w *socketWriter) write(a, b []byte) (int, error) {
	w.iov, w.n, w.err = [2][]byte{a, b}, 0, nil
	if err := w.raw.Write(w.try); err != nil {
		return 0, err
	}
	w.iov = [2][]byte{}
	return w.n, w.err
}

func (w *socketWriter) attempt(fd uintptr) bool {
	for {
		var n int
		var err error
		if len(w.iov[1]) == 0 {
			n, err = unix.Write(int(fd), w.iov[0])
		} else {
			n, err = unix.Writev(int(fd), w.iov[:])
		}
		switch err {
		case nil:
			w.n = n
		case unix.EINTR:
			continue
		case unix.EAGAIN:
		default:
			w.err = err
		}
		return true
	}
}

// pathProbe asks the kernel about the path to the peer. It does so while an acknowledgement is outstanding, which on a
// busy machine may happen in every operation, so it keeps its memory.
type pathProbe struct {
	raw  syscall.RawConn // nil if there is no socket
	ask  func(fd uintptr)
	info unix.TCPInfo
	err  syscall.Errno
}

func (p *pathProbe) init(raw syscall.RawConn) { p.raw, p.ask = raw, p.getInfo }

func (p *pathProbe) getInfo(fd uintptr) {
	n := uint32(unsafe.Sizeof(p.info))
	_, _, p.err = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&p.info)), uintptr(unsafe.Pointer(&n)), 0)
}

// state may not be called concurrently.
func (p *pathProbe) state() (w pathState) {
	if p.raw == nil {
		return w
	}
	p.info = unix.TCPInfo{} // an older kernel fills in less
	if err := p.raw.Control(p.ask); err != nil || p.err != 0 {
		return w
	}
	return pathOf(&p.info)
}

// pathOf tells whether the peer's kernel answers. A peer that does not read keeps its window shut; its kernel answers
// window probes. If the window is open and yet nothing is in flight, this host could not send: its own interface or
// queue drops the packet, and the kernel tries again every half a second without counting it as a retransmission.
func pathOf(i *unix.TCPInfo) pathState {
	dropped := i.Unacked == 0 && i.Notsent_bytes > 0 && i.Snd_wnd >= i.Snd_mss // since Linux 5.4; Snd_wnd is 0 before
	w := pathState{delivered: i.Bytes_acked, answers: i.Unacked == 0 && i.Probes <= 2 && !dropped,
		again: i.Retransmits > 0 || dropped, packet: int(i.Pmtu), resent: uint64(i.Total_retrans)}
	if i.Min_rtt != math.MaxUint32 {
		w.rtt = time.Duration(i.Min_rtt) * time.Microsecond
	}
	return w
}
