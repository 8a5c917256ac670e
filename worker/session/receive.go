package session

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"gorun/worker/session/codec"
)

// receiver is the receiving half of a session. It belongs to the session's reader.
type receiver struct {
	raw  syscall.RawConn
	buf  []byte
	n    int // bytes of the last message
	err  error
	read func(fd uintptr) bool

	mailbox *mailbox // nil: all messages come by the socket
}

// init has the reader call idle before it waits for a message, and busy when it has one.
func (r *receiver) init(raw syscall.RawConn, idle, busy func()) {
	r.raw, r.buf = raw, make([]byte, codec.MaxMessage+1)
	r.read = func(fd uintptr) bool {
		for !r.taken() {
			r.n, r.err = unix.Read(int(fd), r.buf)
			switch {
			case r.err == unix.EINTR:
			case r.err == unix.EAGAIN && r.mailbox.sleep():
				idle()
				return false
			case r.err == unix.EAGAIN, r.mailbox != nil && r.n == codec.PairLen && codec.Type(r.buf) == codec.TypeMail:
			default:
				if r.n <= 0 {
					r.taken() // what came before the end
				}
				busy()
				return true
			}
		}
		busy()
		return true
	}
}

// taken reports whether there was a message in the mailbox, which it takes, or something wrong.
func (r *receiver) taken() bool {
	if r.mailbox == nil {
		return false
	}
	n, err := r.mailbox.take(r.buf)
	if n == 0 && err == nil {
		return false
	}
	r.n, r.err = n, err
	return true
}

// receive returns the next message, valid until the next call; io.EOF at the end.
func (r *receiver) receive() ([]byte, error) {
	if err := r.raw.Read(r.read); err != nil {
		return nil, err
	}
	switch {
	case errors.Is(r.err, unix.ECONNRESET):
		return nil, io.EOF // the rank ended with unread messages
	case r.err != nil:
		return nil, r.err
	case r.n == 0:
		return nil, io.EOF
	case r.n > codec.MaxMessage:
		return nil, codec.Malformed("more than %d bytes", codec.MaxMessage)
	case r.n < codec.PairLen:
		return nil, codec.Malformed("%d bytes", r.n)
	}
	return r.buf[:r.n], nil
}
