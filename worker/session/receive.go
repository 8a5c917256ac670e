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
	over    bool     // the connection has ended; these are set then
	last    uint64   // put of the mailbox at that time
	why     error    // of the socket, nil for a plain end
}

// init has the reader call idle before it waits for a message, and busy when it has one.
func (r *receiver) init(raw syscall.RawConn, idle, busy func()) {
	r.raw, r.buf = raw, make([]byte, codec.MaxMessage+1)
	r.read = func(fd uintptr) bool {
		if !r.look(int(fd)) {
			idle()
			return false
		}
		busy()
		return true
	}
}

// look takes the next message, and reports whether there is one, or the end. It takes one at most, and returns: Close of a
// connection waits for the function that reads it.
func (r *receiver) look(fd int) bool {
	m := r.mailbox
	switch {
	case m == nil:
		r.readSocket(fd)
		return r.err != unix.EAGAIN
	case r.over:
		if !r.taken(r.last) {
			r.n, r.err = 0, r.why
		}
		return true
	case m.unread < maxUnread && r.taken(m.put()):
		m.unread++
		return true
	}
	m.unread = 0
	r.readSocket(fd)
	switch {
	case r.err == unix.EAGAIN:
		return r.taken(m.sleep())
	case r.n <= 0:
		r.over, r.last, r.why = true, m.put(), r.err
		r.taken(r.last) // what came before the end
	case r.n == codec.PairLen && codec.Type(r.buf) == codec.TypeMail:
		r.taken(m.put())
	}
	return true
}

func (r *receiver) readSocket(fd int) {
	for {
		if r.n, r.err = unix.Read(fd, r.buf); r.err != unix.EINTR {
			return
		}
	}
}

// taken reports whether there was a message in the mailbox up to put, which it takes, or something wrong.
func (r *receiver) taken(put uint64) bool {
	n, err := r.mailbox.take(r.buf, put)
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
