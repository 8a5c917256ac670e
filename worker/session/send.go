package session

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/worker/session/codec"
	"gorun/worker/shm"
)

// surplus is how many messages may wait for a rank that does not read, besides an answer to each operation. A
// rank that makes the daemon exceed it is cut off.
const surplus = 1024

// sender is the sending half of a session. A message goes out at once if nothing is queued and the socket takes it;
// else the writer goroutine sends it, in order.
type sender struct {
	mu     sync.Mutex // of the session
	conn   *net.UnixConn
	most   int             // messages that may wait for the rank
	failed func(err error) // notes why no more is sent, if it is not that the rank has ended

	scratch []byte
	shown   map[uint32]bool // result regions whose descriptor the rank has

	queue   []packet
	head    int  // of queue
	writing bool // the writer has the socket
	stopped bool
	wake    chan struct{} // of the writer, closed at the end

	batches bool   // the rank takes COMPLETED
	held    []byte // one that waits to be sent, see outbox

	// Arguments and result of the two closures, which are made once because a new one would be garbage. direct
	// is used under the lock, patient by the writer.
	direct, patient attempt
}

// packet is a queued message.
type packet struct {
	data   []byte
	region *shm.Region // whose descriptor goes along, with a reference; nil for none
}

// attempt is one try to send.
type attempt struct {
	raw  syscall.RawConn
	data []byte
	fd   int // to pass along, -1 for none
	err  error
	try  func(fd uintptr) bool
}

func (s *sender) init(conn *net.UnixConn, raw syscall.RawConn, most int, failed func(err error)) {
	s.conn, s.most, s.failed = conn, most, failed
	s.shown = map[uint32]bool{}
	s.wake = make(chan struct{}, 1)
	s.direct.init(raw, false)
	s.patient.init(raw, true)
}

func (a *attempt) init(raw syscall.RawConn, patient bool) {
	a.raw = raw
	a.try = func(fd uintptr) bool {
		for {
			if a.fd < 0 {
				a.err = unix.Send(int(fd), a.data, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			} else {
				a.err = unix.Sendmsg(int(fd), a.data, unix.UnixRights(a.fd), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			}
			if a.err != unix.EINTR {
				return !patient || a.err != unix.EAGAIN
			}
		}
	}
}

func (a *attempt) send(data []byte, r *shm.Region) error {
	a.data, a.fd, a.err = data, -1, nil
	if r != nil {
		a.fd = r.FD()
	}
	err := a.raw.Write(a.try)
	if err == nil {
		err = a.err
	}
	a.data = nil
	return err
}

// sendLocked sends data, which it does not keep, and the descriptor of r unless that is nil. It never blocks. An
// error is the reader's to find: it ends the session.
func (s *sender) sendLocked(data []byte, r *shm.Region) {
	s.sendEndedLocked()
	s.transmitLocked(data, r)
}

// batchLocked has a completion that brings nothing else wait for others.
func (s *session) batchLocked(c *codec.Completion) bool {
	if !s.batches || !c.Plain() || !s.server.outbox.hold(s) {
		return false
	}
	s.held = codec.AppendCompleted(s.held, c)
	if len(s.held) >= maxHeld {
		s.sendEndedLocked()
	}
	return true
}

// sendEndedLocked sends the completions that wait.
func (s *sender) sendEndedLocked() {
	if len(s.held) > 0 {
		s.transmitLocked(s.held, nil)
		s.held = s.held[:0]
	}
}

func (s *sender) transmitLocked(data []byte, r *shm.Region) {
	if s.stopped {
		return
	}
	if !s.writing {
		err := s.direct.send(data, r)
		if err == nil {
			return
		}
		if err != unix.EAGAIN {
			s.brokenLocked(err)
			return
		}
	}
	if s.queuedLocked() >= s.most {
		s.brokenLocked(fmt.Errorf("the rank leaves %d messages unread", s.queuedLocked()))
		return
	}
	if r != nil {
		r.Retain()
	}
	s.queue = append(s.queue, packet{slices.Clone(data), r})
	if !s.writing {
		s.writing = true
		s.wake <- struct{}{}
	}
}

// brokenLocked gives up on sending, and has the reader end after what the rank has sent. It does not close the connection: Close
// waits for functions that use the socket, and one of them may have called this or wait for the lock.
func (s *sender) brokenLocked(err error) {
	if s.stopped {
		return
	}
	s.stopLocked()
	if err != unix.EPIPE && err != unix.ECONNRESET {
		s.failed(err)
		_ = s.conn.CloseRead() // an error says that it is closed
		_ = s.conn.CloseWrite()
	}
}

func (s *sender) queuedLocked() int { return len(s.queue) - s.head }

// stopLocked throws the queue away and ends the writer.
func (s *sender) stopLocked() {
	if s.stopped {
		return
	}
	s.stopped = true
	for _, p := range s.queue[s.head:] {
		p.drop()
	}
	s.queue, s.head = nil, 0
	close(s.wake)
}

func (p packet) drop() {
	if p.region != nil {
		p.region.Release()
	}
}

// write is the writer: it sends what was queued whenever the socket takes it.
func (s *sender) write() {
	for range s.wake {
		for {
			p, ok := s.next()
			if !ok {
				break
			}
			err := s.patient.send(p.data, p.region)
			p.drop()
			if err != nil {
				s.mu.Lock()
				s.brokenLocked(err)
				s.mu.Unlock()
				break
			}
		}
	}
}

// next takes the head of the queue; at its end the socket goes back to the senders.
func (s *sender) next() (packet, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queuedLocked() == 0 {
		s.queue, s.head, s.writing = s.queue[:0], 0, false
		return packet{}, false
	}
	p := s.queue[s.head]
	s.queue[s.head] = packet{}
	if s.head++; s.head >= 1024 && s.head > len(s.queue)/2 {
		n := copy(s.queue, s.queue[s.head:])
		clear(s.queue[n:])
		s.queue, s.head = s.queue[:n], 0
	}
	return p, true
}

// send sends the message that appends to an empty buffer, and the descriptor of r unless that is nil.
func (s *sender) send(r *shm.Region, message func(b []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scratch = message(s.scratch[:0])
	s.sendLocked(s.scratch, r)
}

func (s *session) welcome(w LocalWorld, p RankPlace, job string) {
	s.size.Store(int32(w.Size))
	welcome := &codec.Welcome{Epoch: w.Epoch, Rank: p.Rank, Size: w.Size, LocalRank: p.LocalRank, LocalSize: len(w.Places),
		CrossRank: p.CrossRank, CrossSize: p.CrossSize, Hosts: w.Hosts, Slots: s.slots != nil, Job: job}
	s.send(nil, func(b []byte) []byte { return codec.AppendWelcome(b, welcome) })
}

func (s *sender) refuse(text string) {
	s.sendFail(0, codec.TypeHello, &collective.Error{Code: collective.CodeInvalid, Text: text})
}

func (s *sender) sendFail(number, what uint32, err error) {
	code, text := codeOf(err)
	s.send(nil, func(b []byte) []byte { return codec.AppendFail(b, number, what, code, text) })
}

func (s *sender) sendGone(e *collective.Error) {
	s.send(nil, func(b []byte) []byte { return codec.AppendGone(b, e.Code, e.Text) })
}

func (s *sender) sendChanged(n news) {
	s.send(nil, func(b []byte) []byte { return codec.AppendChanged(b, n.added, n.removed, n.stamp) })
}

func (s *session) sendTraffic() {
	var sent, overRDMA uint64
	if s.server.cfg.Sent != nil {
		sent, overRDMA = s.server.cfg.Sent()
	}
	s.send(nil, func(b []byte) []byte { return codec.AppendTraffic(b, sent, overRDMA) })
}

// sendPair sends a message of a type and a number.
func (s *sender) sendPair(kind, value uint32) {
	s.send(nil, func(b []byte) []byte { return codec.AppendPair(b, kind, value) })
}
