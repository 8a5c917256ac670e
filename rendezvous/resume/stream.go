// Package resume is a stream of bytes in both directions that outlives the connections that carry it: each side keeps
// what it wrote until the other side has it, and a new connection begins with what was received by then.
//
// A launcher and the daemon of a job speak by such a stream where a standing daemon stands between them, which may be
// replaced while the job runs. Stream is either end. Serve is the side that is connected to, at an abstract unix
// socket: it ends the stream if nobody resumes it in time, so that no job outlives both of those it belongs to.
//
// Carry owns one goroutine beside its caller's and returns when that has ended; Serve one for each connection. The
// package encrypts nothing, and knows its peers by a token that the first connection brings, and by their user.
package resume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// window bounds what is kept for the other side, and what is received and not read.
	window = 1 << 20
	// largest is what one frame carries.
	largest = 64 << 10
	// introduction is how long the beginning of a connection may take.
	introduction = 10 * time.Second
)

// Kinds of frames: a kind, a length of 4 bytes, and so many bytes.
const (
	data    byte = 1
	ack     byte = 2 // how many bytes were received from the beginning of the stream on
	goodbye byte = 3 // the last one
)

// Errors that end a stream.
var (
	ErrNotResumed = errors.New("the connection was not resumed in time")
	ErrSilent     = errors.New("nothing was heard of the launcher any more")
	ErrOrder      = errors.New("the other side ended the stream")

	errOutdated = errors.New("a later connection carries the stream")
)

// Stream is one end. Its zero value is not usable.
type Stream struct {
	mu      sync.Mutex
	changed *sync.Cond // whenever anything below changes

	out  []byte // written and not acknowledged
	base uint64 // bytes before out
	sent uint64 // bytes that the present connection took, and those before it

	in       []byte // received and not read
	received uint64 // bytes, from the beginning on
	told     uint64 // of which the present connection told

	conn   net.Conn // that carries the stream, nil for none
	parted bool     // the other side said goodbye
	closed bool     // this side wants to
	said   bool     // this side has said goodbye
	err    error    // why the stream is over
}

// New returns an end without a connection.
func New() *Stream {
	s := &Stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Read implements io.Reader. Between two connections it waits.
func (s *Stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.in) == 0 {
		switch {
		case s.err != nil:
			return 0, s.err
		case s.parted:
			return 0, io.EOF
		case s.closed:
			return 0, net.ErrClosed
		}
		s.changed.Wait()
	}
	n := copy(b, s.in)
	s.in = s.in[:copy(s.in, s.in[n:])]
	s.changed.Broadcast()
	return n, nil
}

// Write implements io.Writer. It waits while the other side has not acknowledged a window of bytes.
func (s *Stream) Write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		switch {
		case s.err != nil:
			return n, s.err
		case s.parted:
			return n, io.ErrClosedPipe
		case s.closed:
			return n, net.ErrClosed
		}
		room := min(window-len(s.out), len(b))
		if room == 0 {
			s.changed.Wait()
			continue
		}
		s.out = append(s.out, b[:room]...)
		b, n = b[room:], n+room
		s.changed.Broadcast()
	}
	return n, nil
}

// Connected is true while a connection carries the stream.
func (s *Stream) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil
}

// Over is true when the stream has ended and needs no connection any more.
func (s *Stream) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.parted || s.said
}

// Close says goodbye, when the other side has all that was written. It waits for that so long; then the stream is
// over in any case. It returns whether the other side knows.
func (s *Stream) Close(patience time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
	s.await(patience, func() bool { return s.said })
	known := s.said || s.parted
	s.fail(net.ErrClosed)
	return known
}

// Flush waits, so long at most, until the other side has all that was written, and returns whether it has.
func (s *Stream) Flush(patience time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.await(patience, func() bool { return len(s.out) == 0 })
	return len(s.out) == 0
}

// await waits until done, called with mu held like itself, or until the stream or patience is over.
func (s *Stream) await(patience time.Duration, done func() bool) {
	late := false
	timer := time.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.changed.Broadcast()
	})
	defer timer.Stop()
	for !late && s.err == nil && !s.parted && !done() {
		s.changed.Wait()
	}
}

// Fail ends the stream at once.
func (s *Stream) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(err)
}

func (s *Stream) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	if s.conn != nil {
		s.conn.Close()
	}
	s.changed.Broadcast()
}

// Carry lets a connection carry the stream until it breaks or the stream is over. It takes the place of one that
// does so already. What arrives is read from in, which may have buffered some.
func (s *Stream) Carry(conn net.Conn, in io.Reader) error {
	return s.carryIf(func() bool { return true }, conn, in)
}

// carryIf is Carry for a connection that is only to take the place of another one if it is wanted still.
func (s *Stream) carryIf(wanted func() bool, conn net.Conn, in io.Reader) error {
	defer conn.Close()
	if err := s.take(conn, wanted); err != nil {
		return err
	}
	defer s.release()
	if err := s.agree(conn, in); err != nil {
		return fmt.Errorf("resume stream: %w", err)
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		if s.send(conn) != nil {
			conn.Close()
		}
	})
	err := s.receive(conn, in)
	conn.Close()
	s.mu.Lock()
	s.conn = closedConn{conn} // tells send
	s.changed.Broadcast()
	s.mu.Unlock()
	sending.Wait()
	if s.Over() {
		return nil
	}
	return err
}

// closedConn marks a connection that nothing is to be sent on any more.
type closedConn struct{ net.Conn }

// take makes conn the one that carries the stream, after the one before it has stopped.
func (s *Stream) take(conn net.Conn, wanted func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.conn != nil && s.err == nil && wanted() {
		s.conn.Close()
		s.changed.Wait()
	}
	switch {
	case s.err != nil:
		return s.err
	case !wanted():
		return errOutdated
	}
	s.conn = conn
	return nil
}

func (s *Stream) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nil
	s.changed.Broadcast()
}

// agree tells the other side what was received, and learns what to send first.
func (s *Stream) agree(conn net.Conn, in io.Reader) error {
	conn.SetDeadline(time.Now().Add(introduction))
	s.mu.Lock()
	s.told = s.received
	mine := binary.LittleEndian.AppendUint64(nil, s.received)
	s.mu.Unlock()
	if _, err := conn.Write(mine); err != nil {
		return err
	}
	var theirs [8]byte
	if _, err := io.ReadFull(in, theirs[:]); err != nil {
		return err
	}
	conn.SetDeadline(time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.acknowledged(binary.LittleEndian.Uint64(theirs[:]), s.base+uint64(len(s.out))); err != nil {
		s.fail(err) // there is no way to mend it
		return err
	}
	s.sent = s.base
	return nil
}

// acknowledged forgets what the other side has, which is no more than so much.
func (s *Stream) acknowledged(upTo, most uint64) error {
	if upTo < s.base || upTo > most {
		return fmt.Errorf("the other side has %d bytes of %d to %d", upTo, s.base, most)
	}
	s.out = s.out[:copy(s.out, s.out[upTo-s.base:])]
	s.base = upTo
	s.changed.Broadcast()
	return nil
}

// send writes what there is to say, until the connection or the stream is over.
func (s *Stream) send(conn net.Conn) error {
	frame := make([]byte, 0, 2*5+8+largest)
	for {
		s.mu.Lock()
		for s.conn == conn && s.err == nil && s.told == s.received && s.sent == s.base+uint64(len(s.out)) && (!s.closed || s.said || len(s.out) > 0) {
			s.changed.Wait()
		}
		if s.conn != conn || s.err != nil {
			err := s.err
			s.mu.Unlock()
			return err
		}
		frame = frame[:0]
		if s.told != s.received {
			s.told = s.received
			frame = binary.LittleEndian.AppendUint32(append(frame, ack), 8)
			frame = binary.LittleEndian.AppendUint64(frame, s.told)
		}
		if rest := s.out[s.sent-s.base:]; len(rest) > 0 {
			n := min(len(rest), largest)
			frame = binary.LittleEndian.AppendUint32(append(frame, data), uint32(n))
			frame = append(frame, rest[:n]...)
			s.sent += uint64(n)
		}
		part := s.closed && len(s.out) == 0
		if part {
			frame = binary.LittleEndian.AppendUint32(append(frame, goodbye), 0)
		}
		s.mu.Unlock()
		if _, err := conn.Write(frame); err != nil {
			return err
		}
		if part {
			s.mu.Lock()
			s.said = true
			s.changed.Broadcast()
			s.mu.Unlock()
		}
	}
}

// receive takes frames until the connection or the stream is over.
func (s *Stream) receive(conn net.Conn, in io.Reader) error {
	buf := make([]byte, largest)
	for {
		if _, err := io.ReadFull(in, buf[:5]); err != nil {
			return err
		}
		kind, n := buf[0], binary.LittleEndian.Uint32(buf[1:5])
		if n > largest {
			return fmt.Errorf("a frame of %d bytes", n)
		}
		body := buf[:n]
		if _, err := io.ReadFull(in, body); err != nil {
			return err
		}
		s.mu.Lock()
		err := s.took(conn, kind, body)
		s.mu.Unlock()
		if err != nil || kind == goodbye {
			return err
		}
	}
}

// stuck is true if the other side lacks something, and has acknowledged nothing after so many bytes: TCP may wait for as long as a host
// was silent before it sends again what that one missed, although it speaks.
func (s *Stream) stuck(since uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.out) > 0 && s.base == since
}

func (s *Stream) acknowledgedUpTo() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base
}

// unacknowledged is what the other side may not have, and the number of bytes before it.
func (s *Stream) unacknowledged() (base uint64, out []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base, s.out
}

// took takes one frame.
func (s *Stream) took(conn net.Conn, kind byte, body []byte) error {
	switch {
	case kind == data:
		for len(s.in) >= window && s.conn == conn && s.err == nil && !s.closed {
			s.changed.Wait()
		}
		if s.err != nil {
			return s.err
		}
		s.received += uint64(len(body))
		if !s.closed { // nobody reads any more
			s.in = append(s.in, body...)
		}
		s.changed.Broadcast()
	case kind == ack && len(body) == 8:
		return s.acknowledged(binary.LittleEndian.Uint64(body), s.sent)
	case kind == goodbye && len(body) == 0:
		s.parted = true
		s.changed.Broadcast()
	default:
		return fmt.Errorf("a frame of kind %d with %d bytes", kind, len(body))
	}
	return nil
}
