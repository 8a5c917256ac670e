// Package resume implements a byte stream in both directions that outlives the connections that carry it. Each side
// keeps what it wrote until the other has acknowledged it; a new connection starts by exchanging how much each side
// received.
//
// A launcher and the daemon of a job use such a stream when a resident daemon sits between them, which may be replaced
// while the job runs. ResumableStream is either end. Serve is the side that accepts connections, on an abstract unix
// socket. It ends the stream if no launcher resumes it in time, so that no job outlives both processes that it depends
// on.
//
// Carry owns one goroutine beside its caller's and returns when that has ended; Serve owns one per connection. The
// package does not encrypt. It identifies a peer by its user and by a token that the first connection brings.
package resume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// window bounds the unacknowledged bytes, and the bytes received and not read.
	window = 1 << 20
	// largest is the maximum payload of a frame.
	largest = 64 << 10
	// handshakeTimeout bounds the opening exchange on a connection.
	handshakeTimeout = 10 * time.Second
)

// Kinds of frames. A frame is its kind, a length of 4 bytes, and the payload.
const (
	data    byte = 1
	ack     byte = 2 // how many bytes of the stream were received in all
	closing byte = 3 // the last frame
)

// Errors that end a stream.
var (
	ErrNotResumed = errors.New("the connection was not resumed in time")
	ErrSilent     = errors.New("nothing was heard of the launcher any more")
	ErrOrder      = errors.New("the other side ended the stream")

	errOutdated = errors.New("a later connection carries the stream")
)

// ResumableStream is one end. Its zero value is not usable.
type ResumableStream struct {
	mu      sync.Mutex
	changed *sync.Cond // signals any change to the fields below

	out  []byte // written and not acknowledged
	base uint64 // bytes before out
	sent uint64 // bytes sent on this connection and before it

	in       []byte // received and not read
	received uint64 // bytes received in all
	reported uint64 // bytes acknowledged on the present connection

	conn       net.Conn // carries the stream; may be nil
	peerClosed bool     // the other side has closed the stream
	closed     bool     // Close was called
	closeSent  bool     // the closing frame was sent
	err        error    // why the stream is over
}

// New returns an end without a connection.
func New() *ResumableStream {
	s := &ResumableStream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Read implements io.Reader. It waits while there is no connection.
func (s *ResumableStream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.in) == 0 {
		switch {
		case s.err != nil:
			return 0, s.err
		case s.peerClosed:
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

// Write implements io.Writer. It waits while a window of bytes is unacknowledged.
func (s *ResumableStream) Write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		switch {
		case s.err != nil:
			return n, s.err
		case s.peerClosed:
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

// Connected reports whether a connection carries the stream.
func (s *ResumableStream) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil
}

// Over reports whether the stream has ended and needs no connection any more.
func (s *ResumableStream) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.peerClosed || s.closeSent
}

// Close waits until the other side has received everything, or the timeout expires, and closes the stream. It returns
// whether the other side knows.
func (s *ResumableStream) Close(timeout time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
	s.await(timeout, func() bool { return s.closeSent })
	known := s.closeSent || s.peerClosed
	s.fail(net.ErrClosed)
	return known
}

// Flush waits until the other side has received everything, or the timeout expires, and returns whether it has.
func (s *ResumableStream) Flush(timeout time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.await(timeout, func() bool { return len(s.out) == 0 })
	return len(s.out) == 0
}

// await waits until done returns true, the stream is over, or the timeout expires. mu is held, also while done is
// called.
func (s *ResumableStream) await(timeout time.Duration, done func() bool) {
	late := false
	timer := time.AfterFunc(timeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.changed.Broadcast()
	})
	defer timer.Stop()
	for !late && s.err == nil && !s.peerClosed && !done() {
		s.changed.Wait()
	}
}

// Fail ends the stream at once.
func (s *ResumableStream) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(err)
}

func (s *ResumableStream) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	if s.conn != nil {
		s.conn.Close()
	}
	s.changed.Broadcast()
}

// Carry runs the stream on a connection until the connection breaks or the stream is over. It replaces the present
// connection. Input is read from in, which may have buffered some of it.
func (s *ResumableStream) Carry(conn net.Conn, in io.Reader) error {
	return s.carryIf(func() bool { return true }, conn, in)
}

// carryIf is Carry for a connection that may have become unwanted by the time it is its turn.
func (s *ResumableStream) carryIf(wanted func() bool, conn net.Conn, in io.Reader) error {
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
	s.conn = closedConn{conn} // stops send
	s.changed.Broadcast()
	s.mu.Unlock()
	sending.Wait()
	if s.Over() {
		return nil
	}
	return err
}

// closedConn marks a connection on which nothing more is sent.
type closedConn struct{ net.Conn }

// take makes conn the carrier of the stream, after its predecessor has stopped.
func (s *ResumableStream) take(conn net.Conn, wanted func() bool) error {
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

func (s *ResumableStream) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nil
	s.changed.Broadcast()
}

// agree exchanges how much each side has received, which determines where to continue sending.
func (s *ResumableStream) agree(conn net.Conn, in io.Reader) error {
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	s.mu.Lock()
	s.reported = s.received
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
		s.fail(err) // the streams do not match
		return err
	}
	s.sent = s.base
	return nil
}

// acknowledged drops bytes that the other side has received; it cannot have received more than most.
func (s *ResumableStream) acknowledged(upTo, most uint64) error {
	if upTo < s.base || upTo > most {
		return fmt.Errorf("the other side has %d bytes of %d to %d", upTo, s.base, most)
	}
	s.out = s.out[:copy(s.out, s.out[upTo-s.base:])]
	s.base = upTo
	s.changed.Broadcast()
	return nil
}

// send writes data and acknowledgements until the connection or the stream is over.
func (s *ResumableStream) send(conn net.Conn) error {
	frame := make([]byte, 0, 2*5+8+largest)
	for {
		s.mu.Lock()
		for s.conn == conn && s.err == nil && s.reported == s.received && s.sent == s.base+uint64(len(s.out)) && (!s.closed || s.closeSent || len(s.out) > 0) {
			s.changed.Wait()
		}
		if s.conn != conn || s.err != nil {
			err := s.err
			s.mu.Unlock()
			return err
		}
		frame = frame[:0]
		if s.reported != s.received {
			s.reported = s.received
			frame = binary.LittleEndian.AppendUint32(append(frame, ack), 8)
			frame = binary.LittleEndian.AppendUint64(frame, s.reported)
		}
		if rest := s.out[s.sent-s.base:]; len(rest) > 0 {
			n := min(len(rest), largest)
			frame = binary.LittleEndian.AppendUint32(append(frame, data), uint32(n))
			frame = append(frame, rest[:n]...)
			s.sent += uint64(n)
		}
		part := s.closed && len(s.out) == 0
		if part {
			frame = binary.LittleEndian.AppendUint32(append(frame, closing), 0)
		}
		s.mu.Unlock()
		if _, err := conn.Write(frame); err != nil {
			return err
		}
		if part {
			s.mu.Lock()
			s.closeSent = true
			s.changed.Broadcast()
			s.mu.Unlock()
		}
	}
}

// receive reads frames until the connection or the stream is over.
func (s *ResumableStream) receive(conn net.Conn, in io.Reader) error {
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
		if err != nil || kind == closing {
			return err
		}
	}
}

// stuck reports whether the other side lacks data and has acknowledged nothing since. After a silence, TCP may wait as
// long again before it retransmits, although the host sends.
func (s *ResumableStream) stuck(since uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.out) > 0 && s.base == since
}

func (s *ResumableStream) acknowledgedUpTo() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base
}

// unacknowledged returns a copy of the bytes that the other side may lack, and the number of bytes before them. An
// acknowledgement that comes later moves the bytes of the stream.
func (s *ResumableStream) unacknowledged() (base uint64, out []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base, slices.Clone(s.out)
}

// took handles one frame.
func (s *ResumableStream) took(conn net.Conn, kind byte, body []byte) error {
	switch {
	case kind == data:
		for len(s.in) >= window && s.conn == conn && s.err == nil && !s.closed {
			s.changed.Wait()
		}
		if s.err != nil {
			return s.err
		}
		s.received += uint64(len(body))
		if !s.closed { // else there is no reader any more
			s.in = append(s.in, body...)
		}
		s.changed.Broadcast()
	case kind == ack && len(body) == 8:
		return s.acknowledged(binary.LittleEndian.Uint64(body), s.sent)
	case kind == closing && len(body) == 0:
		s.peerClosed = true
		s.changed.Broadcast()
	default:
		return fmt.Errorf("a frame of kind %d with %d bytes", kind, len(body))
	}
	return nil
}
