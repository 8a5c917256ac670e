package link

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// Sizes of a stream's work.
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
	path  syscall.RawConn // the socket, nil if there is none
	wg    sync.WaitGroup  // writer and reader

	// Guarded by link.mu. A stream whose bit is set in link.idle belongs to who takes the bit away,
	// otherwise to its writer.
	closed   bool
	err      error // why it was closed
	awake    bool  // the writer has something to do
	lent     bool  // a caller of Send writes: the writer must stay
	cond     *sync.Cond
	directAt time.Duration // when Send wrote, or would have, last
	progress uint64        // segments of the stream that were acknowledged
	took     uint64        // segments that it brought
	moved    uint64        // progress when it was last looked at
	movedAt  time.Time
	way      way // as it was then
	probe    pathProbe
	cost     float64       // seconds per byte of the last large segment, 0 if there was none
	slow     int           // large segments in a row that took too long
	rest     time.Duration // from mesh.born: until when it carries no more of them, if its bit is set in link.resting
	timedAt  time.Duration // from mesh.born: when a large segment was acknowledged

	out    output
	direct func([]byte) (int, error) // writes what the socket takes at once; nil if the conn cannot
	in     input
}

func newStream(l *link, index int, conn net.Conn) *stream {
	st := &stream{link: l, index: index, conn: conn, path: socketOf(conn), cond: sync.NewCond(&l.mu), movedAt: time.Now()}
	st.direct = directWriter(conn)
	st.probe.init(st.path)
	st.timedAt = time.Since(l.mesh.born)
	st.in.init(conn, l.mesh.cfg.Spin, l.touch)
	return st
}

// start makes the stream the one of its slot. l.mu is held.
func (st *stream) start() {
	l := st.link
	l.slots[st.index].stream = st
	l.touch()
	l.up++
	l.hungUp = false
	l.bulk.up[l.mesh.cfg.rail(st.index)]++
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

// fail closes the stream because of err, and has it replaced.
func (st *stream) fail(err error) {
	l := st.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if !st.close(err) || l.closed || l.lost != nil {
		return
	}
	l.mesh.log.Debug("stream broke", "peer", l.peer, "stream", st.index, "err", err)
	if damaged(err) {
		l.damage(st.conn)
	}
	l.last = err
	l.hungUp = l.up == 0 && endedByPeer(err)
	l.restore(l.slots[st.index], err)
	l.mesh.changed.notify()
}

// close makes writer and reader end; false if it was closed before. l.mu is held.
func (st *stream) close(err error) bool {
	if st.closed {
		return false
	}
	st.closed, st.err = true, err
	st.link.up--
	st.link.bulk.up[st.link.mesh.cfg.rail(st.index)]--
	st.link.load.forget() // what was under way comes again
	st.link.idle &^= 1 << st.index
	st.link.resting = 0 // those that are left may have to carry everything
	st.conn.Close()
	st.cond.Signal()
	st.link.wakeAll() // what was not for the express stream may be now
	return true
}

// wake gives the stream back to its writer, after its idle bit was taken away. l.mu is held.
func (st *stream) wake() {
	st.awake = true
	st.cond.Signal()
}

// way is what the kernel knows of the way to the peer.
type way struct {
	delivered uint64 // bytes that the peer's kernel has acknowledged, which tells a slow stream from one that is stuck
	answers   bool   // that kernel has answered everything it was sent
	packet    int    // the largest that the kernel takes for fit, in bytes; 0 if it does not tell
	again     bool   // what it has not answered was sent again, in vain so far
}

// moves looks whether anything that was sent arrived since it looked last. l.mu is held.
func (st *stream) moves() bool {
	before := st.moved
	st.way = st.probe.state()
	st.moved = st.progress + st.way.delivered
	return st.moved != before
}
