package verbs

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"gorun/collective/crc32c"
)

// Config is what a Transport is made of. Zero values of the second part mean the defaults.
type Config struct {
	Provider Provider
	Devices  []string // that may be used, nil for all
	// Retry is called when a stream that is on TCP should be opened again, because RDMA may work now. It returns false if
	// there is no link to the peer any more.
	Retry func(peer, stream int) bool
	// Problem is called when a stream is not carried by RDMA, or no longer. Any goroutine may call it.
	Problem func(peer int, err error)
	// Carries is called when RDMA carries a stream to a peer, by a queue pair on that port. It may be nil.
	Carries func(peer int, at Place)
	Log     *slog.Logger

	Size   Size // of the streams that carry large segments; 2 MiB, 64 messages
	Small  Size // of the first stream; 256 KiB, 64 messages
	Tuning Tuning
	Probe  time.Duration // how long the first bytes over a queue pair may take; 1 s
}

// Transport carries streams over RDMA where both sides can.
type Transport struct {
	cfg  Config
	born time.Time
	ctx  context.Context
	end  context.CancelFunc
	goes sync.WaitGroup // goroutines of connections, and retries

	mu      sync.Mutex
	trials  map[streamID]*trial
	up      map[*Conn]bool    // connections that carry streams
	opening map[net.Conn]bool // TCP connections over which the sides agree on a queue pair
	held    int               // queue pairs that exist, or are about to
	freed   sync.Cond         // held is 0, or a pause is over
	paused  time.Duration     // until when there are no queue pairs

	failures uint64 // queue pairs that carried a stream and failed
}

type streamID struct{ peer, stream int }

// New returns a transport. Close must be called.
func New(cfg Config) *Transport {
	cfg.Size = cmp.Or(cfg.Size, Size{Ring: 2 << 20, Depth: 64})
	cfg.Small = cmp.Or(cfg.Small, Size{Ring: 256 << 10, Depth: 64})
	cfg.Tuning = cmp.Or(cfg.Tuning, DefaultTuning)
	cfg.Probe = cmp.Or(cfg.Probe, time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	t := &Transport{cfg: cfg, born: time.Now(), trials: map[streamID]*trial{}, up: map[*Conn]bool{},
		opening: map[net.Conn]bool{}}
	t.freed.L = &t.mu
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// Close returns when all goroutines have ended. The link must have closed its connections.
func (t *Transport) Close() {
	t.end()
	t.goes.Wait()
}

// Up returns how many streams RDMA carries now.
func (t *Transport) Up() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.up)
}

// Failures returns how many queue pairs that carried a stream this side has found broken.
func (t *Transport) Failures() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures
}

// errPaused ends the connections that a pause finds.
var errPaused = errors.New("RDMA is paused")

// mostPause bounds a pause whose end is never reported.
const mostPause = time.Hour

// Pause lets no queue pair come until Resume, and does not wait. drain has all streams go on by TCP. When it returns,
// the devices have done what was posted, if that took no longer than within, and hold on to no memory of this process,
// unless one does not let go of it for seconds. vSphere demands this before it moves a virtual machine.
func (t *Transport) Pause() (drain func(within time.Duration)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = t.now() + mostPause
	return t.drain
}

// drain frees all queue pairs, unless Resume comes first.
func (t *Transport) drain(within time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.pauses() {
		return
	}
	for conn := range t.opening {
		conn.SetDeadline(time.Now())
	}
	up := slices.Collect(maps.Keys(t.up))
	t.mu.Unlock()
	for _, c := range up {
		c.drain(within)
	}
	t.mu.Lock()
	over := false
	limit := time.AfterFunc(within+2*t.cfg.Probe, func() { // a probe may be under way
		t.mu.Lock()
		defer t.mu.Unlock()
		over = true
		t.freed.Broadcast()
	})
	defer limit.Stop()
	for t.held > 0 && !over && t.pauses() {
		t.freed.Wait()
	}
}

// Resume ends a pause. A stream that is opened from now on may go over RDMA.
func (t *Transport) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = 0
	t.freed.Broadcast()
}

// pauses reports whether there is a pause. mu is held.
func (t *Transport) pauses() bool { return t.now() < t.paused }

// offer is what a side sends over TCP: its queue pair, or that it has none.
//
//	 0  u32  magic
//	 4  u8   whether there is a queue pair; the rest is 0 if not
//	 5  u8   RoCE v2
//	 6  u16  LID
//	 8  u32  number of the queue pair
//	12  u32  PSN
//	16  16   GID
//	32  u64  address of the ring
//	40  u32  rkey of the ring
//	44  u32  MTU in bytes
//	48  u32  bytes of the ring
//	52  u32  messages in flight
//	56  u32  crc32c of the bytes before
//
// After both offers each side connects its queue pair and sends verdictGood, or verdictBad if that failed. If both are
// good, each sends probeSize bytes over the queue pair and a second verdict about the bytes that it got.
const (
	offerMagic = 0x31616472 // "rda1"
	offerSize  = 60

	verdictBad  = 0
	verdictGood = 1

	probeSize = 8 << 10 // more than a packet: a path that loses large packets fails
)

type offer struct {
	have  bool
	roce2 bool
	end   End
	size  Size
}

func (o *offer) encode() (b [offerSize]byte) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], offerMagic)
	if o.have {
		b[4] = 1
		if o.roce2 {
			b[5] = 1
		}
		le.PutUint16(b[6:], o.end.LID)
		le.PutUint32(b[8:], o.end.Number)
		le.PutUint32(b[12:], o.end.PSN)
		copy(b[16:], o.end.GID[:])
		le.PutUint64(b[32:], o.end.Ring)
		le.PutUint32(b[40:], o.end.Key)
		le.PutUint32(b[44:], uint32(o.end.MTU))
		le.PutUint32(b[48:], uint32(o.size.Ring))
		le.PutUint32(b[52:], uint32(o.size.Depth))
	}
	le.PutUint32(b[56:], crc32c.Sum(b[:56]))
	return b
}

var errOffer = errors.New("the peer's offer of a queue pair is damaged")

func (o *offer) decode(b *[offerSize]byte) error {
	le := binary.LittleEndian
	if le.Uint32(b[56:]) != crc32c.Sum(b[:56]) || le.Uint32(b[0:]) != offerMagic {
		return errOffer
	}
	*o = offer{have: b[4] == 1, roce2: b[5] == 1,
		end: End{Number: le.Uint32(b[8:]), PSN: le.Uint32(b[12:]), LID: le.Uint16(b[6:]), MTU: int(le.Uint32(b[44:])),
			Ring: le.Uint64(b[32:]), Key: le.Uint32(b[40:])},
		size: Size{Ring: int(le.Uint32(b[48:])), Depth: int(le.Uint32(b[52:]))}}
	copy(o.end.GID[:], b[16:])
	return nil
}

// Upgrade returns what is to carry the bytes of a new stream: a Conn over conn, or conn itself. Both sides have proven
// who they are and call it at the same time. The error is one of conn, which is of no use any more.
func (t *Transport) Upgrade(_ context.Context, conn net.Conn, peer, stream int) (net.Conn, error) {
	id := streamID{peer, stream}
	size := t.cfg.Size
	if stream == 0 {
		size = t.cfg.Small
	}
	pair, place, mine, reason := t.open(conn, id, size)
	defer t.opened(conn)
	theirs, err := exchange(conn, &mine)
	if err != nil {
		if pair != nil {
			pair.Close()
			t.late(id, err)
		}
		return nil, err
	}
	if !mine.have || !theirs.have {
		if pair != nil {
			pair.Close()
		}
		switch {
		case reason != nil:
			t.failed(id, reason)
		case mine.have:
			t.mu.Lock()
			t.trial(id).waits = false
			t.mu.Unlock()
		default: // it is not the time
			t.retry(id)
		}
		return conn, nil
	}
	if reason = fit(&mine, &theirs); reason == nil {
		reason = pair.Connect(mine.end.PSN, theirs.end, t.cfg.Tuning)
	}
	good, err := agree(conn, reason)
	if err != nil || !good {
		pair.Close()
		return t.disagreed(id, conn, reason, err)
	}
	c := newConn(conn, pair, size, &t.goes)
	reason = lost(c.probe(t.cfg.Probe))
	good, err = agree(conn, reason)
	if err != nil || !good {
		c.Close()
		return t.disagreed(id, conn, reason, err)
	}
	t.mu.Lock()
	if t.pauses() {
		t.mu.Unlock()
		c.Close()
		return nil, errPaused
	}
	t.up[c] = true
	tr := t.trial(id)
	tr.on++
	tr.waits = false
	tr.worked(t.now())
	t.mu.Unlock()
	if err := c.carry(func(err error) { t.broke(id, c, err) }); err != nil {
		t.mu.Lock()
		delete(t.up, c)
		tr.on--
		t.mu.Unlock()
		if !errors.Is(err, errPaused) {
			t.failed(id, err)
		}
		return nil, err
	}
	if t.cfg.Carries != nil {
		t.cfg.Carries(peer, place)
	}
	return c, nil
}

// disagreed returns what Upgrade does when the sides have not agreed.
func (t *Transport) disagreed(id streamID, conn net.Conn, reason, broken error) (net.Conn, error) {
	if broken != nil {
		t.late(id, broken)
		return nil, broken
	}
	t.failed(id, cmp.Or(reason, errPeer))
	return conn, nil
}

// errLate means that making a queue pair and its first packets took longer than a new connection may take.
var errLate = errors.New("the hosts did not agree on a queue pair in time")

// late takes note of a connection that ended while the sides agreed. If its time was over, a queue pair may take too long
// here every time, and without a rest the stream would never come up. One that broke says nothing about RDMA.
func (t *Transport) late(id streamID, broken error) {
	t.mu.Lock()
	paused := t.pauses() // which ends connections by a deadline
	t.mu.Unlock()
	if errors.Is(broken, os.ErrDeadlineExceeded) && !paused {
		t.failed(id, errLate)
	}
}

// errLost means that nothing arrives: a firewall drops UDP port 4791, a switch has a smaller MTU, or the peer is in another
// subnet, which RoCE v1 does not reach.
var errLost = errors.New("packets over the queue pair do not arrive; " +
	"UDP port 4791 must pass, MTUs agree, and other subnets need RoCE v2")

// lost explains why the first bytes over a queue pair have not arrived. Broken does not hold for its result, because the
// pair has never carried a stream.
func lost(err error) error {
	failed, _ := errors.AsType[*StatusError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded),
		failed != nil && (failed.Status == StatusRetries || failed.Status == StatusTime):
		return errLost
	}
	return fmt.Errorf("probe queue pair: %s", err.Error())
}

// errPeer means that the other side reports the reason.
var errPeer = errors.New("the other host could not use its queue pair")

// open makes this side's queue pair beside a connection, if it is the time for one.
func (t *Transport) open(conn net.Conn, id streamID, size Size) (Pair, Place, offer, error) {
	from := conn.LocalAddr()
	t.mu.Lock()
	tr := t.trial(id)
	tr.from = from
	wants := tr.wants(t.now()) && !t.pauses() && t.ctx.Err() == nil
	if wants {
		t.opening[conn] = true
		t.held++
	}
	t.mu.Unlock()
	if !wants {
		return nil, Place{}, offer{}, nil
	}
	pair, place, err := t.pair(from, size)
	if err != nil {
		t.release()
		return nil, place, offer{}, err
	}
	pair = heldPair{pair, t.release}
	o := offer{have: true, roce2: place.GID.RoCE2, end: pair.End(), size: size}
	o.end.PSN = rand.Uint32() & byteMask
	return pair, place, o, nil
}

// opened is the end of an Upgrade.
func (t *Transport) opened(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.opening, conn)
}

// heldPair is a queue pair that held counts.
type heldPair struct {
	Pair
	release func()
}

func (p heldPair) Close() error {
	defer p.release()
	return p.Pair.Close()
}

// release is the end of a queue pair that held counts.
func (t *Transport) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held--; t.held == 0 {
		t.freed.Broadcast()
	}
}

// pair returns a queue pair that can be connected.
func (t *Transport) pair(from net.Addr, size Size) (Pair, Place, error) {
	place, err := t.place(from)
	if err != nil {
		return nil, place, err
	}
	pair, err := t.cfg.Provider.Open(place, size)
	if err == nil {
		if err = pair.Receive(size.Depth); err != nil {
			pair.Close()
		}
	}
	if err != nil {
		return nil, place, fmt.Errorf("open queue pair on %s port %d: %w", place.Device, place.Number, err)
	}
	return pair, place, nil
}

// Device names the RDMA device for connections from an address, "" if there is none.
func (t *Transport) Device(from net.Addr) string {
	at, err := t.place(from)
	if err != nil {
		return ""
	}
	return at.Device
}

// place returns where a queue pair goes beside a connection from the given address.
func (t *Transport) place(from net.Addr) (Place, error) {
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return Place{}, fmt.Errorf("find RDMA port: %w", err)
	}
	ports, err := t.cfg.Provider.Ports()
	if err != nil {
		return Place{}, err
	}
	return choose(ports, at.Addr(), t.cfg.Devices, t.cfg.Tuning)
}

// fit reports why two queue pairs cannot be connected, nil if they can.
func fit(mine, theirs *offer) error {
	switch {
	case mine.size != theirs.size:
		return fmt.Errorf("the other host's rings have %d bytes instead of %d", theirs.size.Ring, mine.size.Ring)
	case mine.roce2 != theirs.roce2:
		return errors.New("one of the hosts has RoCE v2 and the other only v1")
	}
	return nil
}

// exchange sends an offer and returns the peer's.
func exchange(conn net.Conn, mine *offer) (theirs offer, err error) {
	b := mine.encode()
	if _, err := conn.Write(b[:]); err != nil {
		return theirs, err
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return theirs, err
	}
	return theirs, theirs.decode(&b)
}

// agree exchanges verdicts. It returns whether both are good; an error is one of conn.
func agree(conn net.Conn, reason error) (good bool, err error) {
	b := [1]byte{verdictGood}
	if reason != nil {
		b[0] = verdictBad
	}
	if _, err := conn.Write(b[:]); err != nil {
		return false, err
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return false, err
	}
	return reason == nil && b[0] == verdictGood, nil
}

// probe sends bytes over the queue pair and receives the peer's.
func (c *Conn) probe(within time.Duration) error {
	b := make([]byte, probeSize)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8)
	}
	want := crc32c.Sum(b)
	c.SetDeadline(time.Now().Add(within))
	if _, err := c.Write(b); err != nil {
		return err
	}
	clear(b)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if crc32c.Sum(b) != want {
		return errors.New("other bytes arrived than were sent")
	}
	return c.SetDeadline(time.Time{})
}

func (t *Transport) now() time.Duration { return time.Since(t.born) }

// trial returns the trial of a stream. mu is held.
func (t *Transport) trial(id streamID) *trial {
	tr := t.trials[id]
	if tr == nil {
		tr = &trial{least: t.cfg.Tuning.Rest, most: mostRests * t.cfg.Tuning.Rest}
		t.trials[id] = tr
	}
	return tr
}

// broke takes note that the queue pair of a stream has ended. The link opens the stream again by itself.
func (t *Transport) broke(id streamID, c *Conn, err error) {
	failed := Broken(err) // else it was closed, or TCP broke
	t.mu.Lock()
	delete(t.up, c)
	tr := t.trial(id)
	tr.on--
	rest := time.Duration(0)
	if failed {
		t.failures++
		rest = tr.failed(t.now())
	}
	// The stream may already go over a connection that has no queue pair: it failed to get one while this one was up, or
	// came from the other side before this one was, and replaced it.
	waits := tr.waits || tr.on == 0
	t.mu.Unlock()
	if failed {
		t.report(id, err)
	}
	if rest > 0 || waits {
		t.retry(id)
	}
}

// Broken reports whether a queue pair, rather than TCP or this program, ended the connection.
func Broken(err error) bool {
	_, status := errors.AsType[*StatusError](err)
	_, event := errors.AsType[*EventError](err)
	return status || event
}

// failed takes note that a stream stays on TCP, and has it opened again later.
func (t *Transport) failed(id streamID, reason error) {
	t.mu.Lock()
	t.trial(id).failed(t.now())
	t.mu.Unlock()
	t.report(id, reason)
	t.retry(id)
}

func (t *Transport) report(id streamID, reason error) {
	t.cfg.Log.Debug("RDMA does not carry a stream", "peer", id.peer, "stream", id.stream, "err", reason)
	if t.cfg.Problem != nil {
		t.cfg.Problem(id.peer, reason)
	}
}

// mostLook is how often a host looks at least for a port. That opens every device.
const mostLook = 5 * time.Second

// retry has a stream opened again after a time, and again until RDMA carries it or only the peer knows why it does not.
// While this host has no port for it, there is nothing to open, and it looks for one every few seconds.
func (t *Transport) retry(id streamID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr := t.trial(id)
	tr.waits = true
	if tr.retries || t.cfg.Retry == nil || t.ctx.Err() != nil {
		return
	}
	tr.retries = true
	t.goes.Go(func() {
		for rest := t.cfg.Tuning.Rest; ; {
			t.mu.Lock()
			wait := max(rest, tr.until-t.now())
			if tr.on > 0 || !tr.waits || t.ctx.Err() != nil {
				tr.retries = false
				t.mu.Unlock()
				return
			}
			t.mu.Unlock()
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-t.ctx.Done():
				timer.Stop()
				continue
			}
			t.mu.Lock()
			from, paused := tr.from, t.pauses()
			t.mu.Unlock()
			if paused {
				continue
			}
			most := mostRests * t.cfg.Tuning.Rest
			_, err := t.place(from)
			if err != nil {
				most = min(most, max(mostLook, t.cfg.Tuning.Rest))
			}
			if rest = min(2*rest, most); err == nil && !t.cfg.Retry(id.peer, id.stream) {
				t.mu.Lock()
				tr.waits = false
				t.mu.Unlock()
			}
		}
	})
}
