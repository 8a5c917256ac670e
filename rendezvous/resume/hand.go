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

// A process can be there before the session that it is for. It waits at one end of a pair of sockets, and gets that of the
// session from the other end.

// ErrNotWanted is that whoever has started a process went away, or has no session for it any more.
var ErrNotWanted = errors.New("there is no job for this daemon")

// Hand gives a process the socket of a session, and how long it is to wait for another launcher, 0 for none.
func Hand(to *net.UnixConn, socket *os.File, patience time.Duration) error {
	said := binary.LittleEndian.AppendUint64(nil, uint64(patience))
	if _, _, err := to.WriteMsgUnix(said, syscall.UnixRights(int(socket.Fd())), nil); err != nil {
		return fmt.Errorf("hand socket to daemon: %w", err)
	}
	return nil
}

// Receive waits for what Hand gives. The file stays open.
func Receive(ctx context.Context, from *os.File) (net.Listener, time.Duration, error) {
	conn, err := net.FileConn(from)
	if err != nil {
		return nil, 0, fmt.Errorf("wait for job: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	pair, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, 0, fmt.Errorf("wait for job: standard input is a %s connection", conn.LocalAddr().Network())
	}
	said, rights := make([]byte, 8), make([]byte, syscall.CmsgSpace(4))
	n, got, _, _, err := pair.ReadMsgUnix(said, rights)
	switch {
	case ctx.Err() != nil:
		return nil, 0, context.Cause(ctx)
	case err == nil && n == 0, errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return nil, 0, ErrNotWanted
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
