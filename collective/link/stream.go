package link

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"gorun/collective/flight"
)

// Sizes that govern a stream.
const (
	smallLimit = 4 << 10  // payloads up to here are written together, and by Send if a stream is idle
	maxBatch   = 32       // small segments in one writev
	readBuffer = 64 << 10 // for headers and small payloads

	burst = 10 * time.Microsecond // small segments at shorter intervals are written together
)

// stream is one connection of a link.
type stream struct {
	link  *link
	index int
	conn  net.Conn
	// upgraded is conn if it is one, else nil.
	upgraded Upgraded
	sends    half           // of the owner, see below
	receives half           // of the reader
	wg       sync.WaitGroup // writer and reader

	// Guarded by link.mu. A stream whose bit is set in link.idle belongs to the goroutine that clears the bit,
	// otherwise to its writer.
	closed    bool
	err       error // why it was closed
	awake     bool  // the writer has something to do
	lent      bool  // a caller of Send is writing: the writer must wait
	cond      *sync.Cond
	directAt  time.Duration // when Send last wrote, or would have
	progress  uint64        // segments of the stream that were acknowledged
	took      uint64        // segments that it delivered
	moved     uint64        // progress at the last check
	movedAt   time.Time
	pathState pathState // as of the last check
	probe     pathProbe
	cost      float64       // seconds per byte of the last large segment, 0 if there was none
	slow      int           // large segments in a row that took too long
	rest      time.Duration // until when it carries no large segments, since mesh.born, if its bit is set in link.resting
	timedAt   time.Duration // when a large segment was last acknowledged, since mesh.born

	out    output
	direct func(a, b []byte) (int, error) // writes what the socket accepts of both at once; nil if the conn cannot
	in     input
}

func newStream(l *link, index int, keys *keyed) *stream {
	conn, sends, receives := keys.hand()
	st := &stream{link: l, index: index, conn: conn, sends: sends, receives: receives, cond: sync.NewCond(&l.mu), movedAt: time.Now()}
	socket := socketOf(conn)
	st.direct = directWriter(socket)
	if up, ok := conn.(Upgraded); ok {
		st.upgraded, st.direct = up, up.WriteNow
	}
	st.probe.init(socket)
	st.timedAt = time.Since(l.mesh.born)
	st.in.init(conn, socket, l.touch)
	return st
}

// socketOf returns the socket below a connection, nil if there is none.
func socketOf(conn net.Conn) syscall.RawConn {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// start makes the stream its slot's present one. l.mu is held.
func (st *stream) start() {
	l := st.link
	l.slots[st.index].stream = st
	l.touch()
	l.up++
	l.hungUp = false
	l.wg.Add(2)
	st.wg.Add(2)
	go func() {
		defer l.wg.Done()
		defer st.wg.Done()
		st.fail(st.transmit())
	}()
	go func() {
		defer l.wg.Done()
		defer st.wg.Done()
		st.fail(st.receive())
	}()
}

// fail closes the stream because of err, and replaces it.
func (st *stream) fail(err error) {
	l := st.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if !st.close(err) || l.closed || l.lost != nil {
		return
	}
	l.mesh.log.Debug("stream broke", "peer", l.peer, "stream", st.index, "err", err)
	if errors.Is(err, errDamaged) {
		l.damage(st.conn)
	}
	l.last = err
	l.mesh.events.add(l, st.index, flight.Broke, 0)
	l.hungUp = l.up == 0 && endedByPeer(err)
	l.slots[st.index].restore(err)
	l.mesh.changed.notify()
}

// close makes writer and reader end. It returns false if the stream was closed before. l.mu is held.
func (st *stream) close(err error) bool {
	if st.closed {
		return false
	}
	st.closed, st.err = true, err
	st.link.up--
	st.link.out.load.forget() // what was in flight will be repeated
	st.link.idle &^= 1 << st.index
	st.link.resting = 0 // the remaining streams may have to carry everything
	st.conn.Close()
	st.cond.Signal()
	st.link.wakeAll() // other streams may take what was not for the express stream
	return true
}

// wake gives the stream back to its writer, after its idle bit was cleared. l.mu is held.
func (st *stream) wake() {
	st.awake = true
	st.cond.Signal()
}

// pathState is what the kernel, or the device, knows of the path to the peer.
type pathState struct {
	delivered uint64        // bytes that the peer's kernel has acknowledged, which distinguishes a slow stream from a stuck one
	answers   bool          // that kernel has answered everything it was sent
	packet    int           // the largest packet that the kernel considers safe, in bytes; 0 if unknown
	again     bool          // unanswered data was retransmitted, in vain so far
	resent    uint64        // packets that were sent again
	rtt       time.Duration // the shortest round trip of the last minutes; 0 if unknown
}

// look returns the state of the path. It costs no packet: the kernel times TCP's acknowledgements. l.mu is held.
func (st *stream) look() pathState {
	p := st.probe.state()
	if st.upgraded != nil {
		p.delivered, p.answers = st.upgraded.Delivered()
		p.rtt = st.upgraded.RTT()
	}
	return p
}

// moves reports whether any data has arrived since the last check. l.mu is held.
func (st *stream) moves() bool {
	before := st.moved
	st.pathState = st.look()
	st.moved = st.progress + st.pathState.delivered
	return st.moved != before
}
