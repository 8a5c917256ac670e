package session

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/collective/admit"
	"gorun/worker/session/codec"
	"gorun/worker/session/slots"
	"gorun/worker/shm"
)

// session is one connection. Its reader runs serve and dispatch; Complete comes from any goroutine.
type session struct {
	server *Server
	pid    int32
	size   atomic.Int32 // of the world, 0 before WELCOME

	// Set once, under the server's lock: by admit, and with WELCOME.
	process int
	budget  *shm.Budget
	epoch   uint32 // of the world it is in, 0 before
	rank    int    // in there

	// The reader's own.
	receiver
	arena
	names      interned[string]
	shapes     interned[[]int]
	numbers    []int      // scratch memory of a submission
	taken      []*session // whose completions it is about to send
	submission codec.Submit
	left       bool         // BYE came
	wished     bool         // MAILBOX came
	slots      *slots.Table // written with the server's lock held, before WELCOME; may be nil
	inSlots    bool         // the rank may use them

	sender // its lock guards these
	inFlight
	ended     bool
	submitted uint64  // operations
	failure   failure // that was sent to the rank last

	waits, reading bool // guarded by the outbox
}

func newSession(s *Server, conn *net.UnixConn) (*session, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("open connection: %w", err)
	}
	x := &session{server: s, process: -1, arena: arena{regions: map[uint32]*shm.Region{}}, names: interned[string]{}, shapes: interned[[]int]{},
		inFlight: inFlight{operations: map[uint32]*operation{}, pending: map[uint32]*pending{}}}
	x.sender.init(conn, raw, s.cfg.Operations+surplus, func(err error) {
		s.cfg.Log.Warn("send to rank", "rank", x.rank, "err", err)
	})
	x.receiver.init(raw, func() { s.outbox.idle(x) }, func() { s.outbox.busy(x) })
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("read peer's credentials: %w", err)
	}
	if !admit.Allowed(int(cred.Uid)) {
		return nil, fmt.Errorf("process %d of user %d is not of this job", cred.Pid, cred.Uid)
	}
	x.pid = cred.Pid
	return x, nil
}

// known reports whether the process has proved who it is. Guarded by the server's lock.
func (s *session) known() bool { return s.process >= 0 }

// serve is the reader: the handshake, then one message at a time until the connection ends.
func (s *session) serve() {
	err := s.handshake()
	for err == nil {
		var b []byte
		if b, err = s.receive(); err == nil {
			err = s.dispatch(b)
		}
	}
	if errors.Is(err, codec.ErrMalformed) && s.known() {
		s.sendGone(&collective.Error{Code: collective.CodeInvalid, Text: err.Error()})
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.server.cfg.Log.Warn("end session", "process", s.process, "pid", s.pid, "err", err)
	}
	s.end()
}

// handshake waits for the hello and checks it.
func (s *session) handshake() error {
	if err := s.conn.SetReadDeadline(time.Now().Add(s.server.cfg.Handshake)); err != nil {
		return fmt.Errorf("limit handshake: %w", err)
	}
	b, err := s.receive()
	if err != nil {
		return err
	}
	h, err := codec.DecodeHello(b)
	if err != nil {
		return err
	}
	if err := s.server.admit(s, h); err != nil {
		return err
	}
	s.server.rejoin(s)
	s.server.want()
	return s.conn.SetReadDeadline(time.Time{})
}

// end releases everything the rank had, except what operations still use: that goes with their Complete.
func (s *session) end() {
	s.server.outbox.idle(s)
	s.server.leave(s)
	s.mu.Lock()
	s.ended = true
	for handle, o := range s.operations {
		if o.done || o.held != nil {
			s.forgetLocked(handle, o)
		}
	}
	s.stopLocked()
	s.mu.Unlock()
	for _, r := range s.regions {
		r.Release()
	}
	clear(s.regions)
	if s.mailbox != nil {
		s.mailbox.region.Release()
	}
	s.conn.Close()
	s.server.remove(s)
	if s.slots != nil {
		s.slots.Region().Release()
	}
}

func (s *session) dispatch(b []byte) error {
	kind := codec.Type(b)
	if kind == codec.TypeMail && s.mailbox != nil { // it has done its part: the reader looks there
		_, err := codec.DecodePair(b)
		return err
	}
	if s.size.Load() == 0 && kind != codec.TypeBye {
		return codec.Malformed("type %d before the world is known", kind)
	}
	if s.left && kind != codec.TypeRelease && kind != codec.TypeFree { // threads of the rank may still let go of things
		return codec.Malformed("type %d after goodbye", kind)
	}
	switch kind {
	case codec.TypeSubmit:
		if err := codec.DecodeSubmit(b, &s.submission); err != nil {
			return err
		}
		return s.submit(&s.submission)
	case codec.TypeEnv:
		name, value, err := codec.DecodeEnv(b)
		if err == nil && s.server.cfg.Setenv != nil {
			s.server.cfg.Setenv(s.process, name, value)
		}
		return err
	case codec.TypeAlloc:
		request, n, err := codec.DecodeAlloc(b)
		if err != nil {
			return err
		}
		s.alloc(request, n)
		return nil
	case codec.TypeRelease, codec.TypeFree, codec.TypeBye, codec.TypeSlots, codec.TypeTraffic, codec.TypeKept, codec.TypeBatch,
		codec.TypeMailbox:
		value, err := codec.DecodePair(b)
		if err != nil {
			return err
		}
		switch kind {
		case codec.TypeRelease:
			s.release(value)
		case codec.TypeFree:
			return s.free(value)
		case codec.TypeSlots:
			return s.showSlots()
		case codec.TypeMailbox:
			return s.openMailbox()
		case codec.TypeBatch:
			s.mu.Lock()
			s.batches = true
			s.mu.Unlock()
		case codec.TypeTraffic:
			s.sendTraffic()
		case codec.TypeKept:
			if s.server.cfg.Kept != nil {
				s.server.cfg.Kept(s.epoch)
			}
		default:
			s.left = true
			s.server.leave(s)
			s.sendPair(codec.TypeGoodbye, 0)
		}
		return nil
	default:
		return codec.Malformed("unknown type %d", kind)
	}
}

// failure is the first of a run of errors that were sent to a rank: the errors after it are often its consequence. The
// run is over when an operation succeeds that the rank has begun after the last of them.
type failure struct {
	text      string // "" for none
	submitted uint64 // before the last of the run
	met       uint64 // uses of slots before it
}

func (s *session) failLocked(text string) {
	if s.ended {
		return
	}
	s.failure = failure{text: cmp.Or(s.whyLocked(), text), submitted: s.submitted}
	if s.slots != nil {
		s.failure.met = s.slots.Met()
	}
}

// whyLocked returns why the rank may be about to leave, "" if no error is known.
func (s *session) whyLocked() string {
	if s.slots != nil && s.slots.Met() != s.failure.met {
		return ""
	}
	return s.failure.text
}

// resultMemory can be shown to ranks.
type resultMemory interface {
	Region() (r *shm.Region, number uint32, offset int)
}

// Complete implements collective.Client.
func (s *session) Complete(handle uint64, r collective.Result) {
	if followers := s.complete(handle, r); len(followers) > 0 {
		s.releaseFollowers(followers, r.Err)
	}
}

// complete sends the rank a result, and returns the followers of the operation.
func (s *session) complete(handle uint64, r collective.Result) (followers []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.operations[uint32(handle)]
	if o == nil || o.done {
		panic(fmt.Sprintf("session: rank %d: operation %d completed twice", s.rank, handle))
	}
	o.done, followers = true, o.followers
	o.unpin()
	slot, shows := 0, []slots.Showing(nil)
	if o.slot != "" {
		slot, shows = s.slots.Assign(s.rank, o.slot, r.Err != nil)
	}
	for _, x := range shows {
		s.scratch = codec.AppendShow(s.scratch[:0], x.Place, x.Number, x.Memory.Size())
		s.sendLocked(s.scratch, x.Memory)
		x.Memory.Release()
	}
	o.result = r.Buffer
	if o.notified {
		followers = nil
	}
	if o.notified || s.ended {
		s.forgetLocked(o.handle, o)
		return followers
	}
	c := codec.Completion{Handle: o.handle, Region: codec.NoRegion, Offset: slot, Dims: r.Shape, Rows: r.Rows}
	var shown *shm.Region
	if r.Buffer != nil {
		region, number, at := r.Buffer.(resultMemory).Region()
		c.Region, c.Offset, c.Bytes, c.RegionBytes = number, at+r.Lo, r.Hi-r.Lo, region.Size()
		if c.FD = !s.shown[number]; c.FD {
			s.shown[number] = true
			shown = region
		}
	}
	if r.Err != nil {
		c = codec.Completion{Handle: o.handle, Region: codec.NoRegion}
		c.Code, c.Text = codeOf(r.Err)
		s.failLocked(c.Text)
	} else if o.number > s.failure.submitted {
		s.failure = failure{}
	}
	c.Took = r.Took
	if !s.batchLocked(&c) {
		s.scratch = codec.AppendComplete(s.scratch[:0], &c)
		s.sendLocked(s.scratch, shown)
	}
	if c.Region == codec.NoRegion {
		s.forgetLocked(o.handle, o)
	}
	return followers
}

// codeOf returns an error as the rank shall see it.
func codeOf(err error) (collective.Code, string) {
	var e *collective.Error
	if errors.As(err, &e) {
		return e.Code, e.Text
	}
	return collective.CodeInternal, err.Error()
}

// release drops a result. A rank whose wait was interrupted may release it twice, so an unknown handle is no error.
func (s *session) release(handle uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.operations[handle]; o != nil && o.done {
		s.forgetLocked(handle, o)
	}
}

func (s *session) alloc(request uint32, n uint64) {
	if len(s.regions) >= maxRegions {
		s.sendFail(request, codec.TypeAlloc, invalid("allocate memory: %d regions are in use already", maxRegions))
		return
	}
	r, err := shm.Create(s.budget, "gorun-arena", int64(min(n, uint64(1)<<62)))
	if err != nil {
		s.sendFail(request, codec.TypeAlloc, invalid("allocate memory: %v", err))
		return
	}
	number := s.add(r)
	s.send(r, func(b []byte) []byte { return codec.AppendRegion(b, request, number, r.Size()) })
}

func (s *session) free(region uint32) error {
	r := s.regions[region]
	if r == nil {
		return codec.Malformed("region %d is not this rank's", region)
	}
	delete(s.regions, region)
	s.hideRegion(region)
	r.Release()
	return nil
}
