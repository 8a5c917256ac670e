package resume

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// A process may be started before the session it will serve. It waits on one end of a socket pair, and receives the
// session's socket from the other end.

// ErrNoJob means that the process that started this one has gone, or has no session for it.
var ErrNoJob = errors.New("there is no job for this daemon")

// Pair returns two connected sockets: one for this process, one for a child to inherit.
func Pair() (ours *net.UnixConn, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // macOS makes no socket that is closed on exec at once
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make sockets: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "theirs")
	file := os.NewFile(uintptr(fds[0]), "ours")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make sockets: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// Hand sends a process the socket of a session, and how long to wait for another launcher, 0 for not at all.
func Hand(to *net.UnixConn, socket *os.File, patience time.Duration) error {
	said := binary.LittleEndian.AppendUint64(nil, uint64(patience))
	if _, _, err := to.WriteMsgUnix(said, syscall.UnixRights(int(socket.Fd())), nil); err != nil {
		return fmt.Errorf("hand socket to daemon: %w", err)
	}
	return nil
}

// Waiting is the end of the pair on which the process waits.
type Waiting struct{ conn *net.UnixConn }

// Wait returns the end that the process has inherited. The file stays open.
func Wait(inherited *os.File) (*Waiting, error) {
	conn, err := net.FileConn(inherited)
	if err != nil {
		return nil, fmt.Errorf("wait for job: %w", err)
	}
	pair, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("wait for job: standard input is a %s connection", conn.LocalAddr().Network())
	}
	return &Waiting{pair}, nil
}

// Close closes it.
func (w *Waiting) Close() error { return w.conn.Close() }

// Free reports that the session is over and that this process can take another one.
func (w *Waiting) Free() error {
	_, err := w.conn.Write([]byte{free})
	return err
}

const free byte = 'F' // free

// Done waits until the session of a process is over. It reports whether the process can take another one.
func Done(process *net.UnixConn) bool {
	said := make([]byte, 1)
	_, err := process.Read(said)
	return err == nil && said[0] == free
}

// Receive waits for a session from Hand, or until ctx ends.
func (w *Waiting) Receive(ctx context.Context) (net.Listener, time.Duration, error) {
	defer context.AfterFunc(ctx, func() { w.conn.Close() })()
	said, rights := make([]byte, 8), make([]byte, syscall.CmsgSpace(4))
	n, got, _, _, err := w.conn.ReadMsgUnix(said, rights)
	switch {
	case ctx.Err() != nil:
		return nil, 0, context.Cause(ctx)
	case err == nil && n == 0, errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return nil, 0, ErrNoJob
	case err != nil:
		return nil, 0, fmt.Errorf("wait for job: %w", err)
	}
	fds, err := descriptors(rights[:got])
	if err != nil || n != len(said) || len(fds) != 1 {
		return nil, 0, errors.Join(fmt.Errorf("wait for job: %d bytes and %d sockets", n, len(fds)), err)
	}
	socket := os.NewFile(uintptr(fds[0]), "session")
	defer socket.Close()
	l, err := net.FileListener(socket)
	if err != nil {
		return nil, 0, fmt.Errorf("listen for launcher: %w", err)
	}
	return l, time.Duration(binary.LittleEndian.Uint64(said)), nil
}

func descriptors(rights []byte) ([]int, error) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	return syscall.ParseUnixRights(&messages[0])
}
