// Package session is the daemon's end of the rank protocol: it serves the ranks of a host. Each rank connects to one
// unix socket, gets shared memory, submits operations to the engine and learns how they ended. The messages are those
// of worker/session/codec, and its PROTOCOL.md describes them; shared-memory slots are counted in worker/session/slots.
// The other ends are worker/rank and the bindings for Python and C.
//
// Server.Run owns the goroutines, two per connected rank (a reader and a writer), and returns when all have ended. The
// package starts no process, and knows nothing of other hosts.
//
//   - server.go: the socket, which processes may connect, the world
//   - session.go: one connection, from its first message to its last
//   - submit.go: from the message SUBMIT to a request to the engine
//   - operation.go: an operation until its rank needs nothing of it any more
//   - follow.go: operations that wait for another one of their rank
//   - receive.go, mailbox.go: messages of a rank, by its socket or in memory that it shares
//   - send.go, outbox.go: messages to a rank, and completions that go together
//   - slots.go: the daemon's part in shared-memory slots
//   - stall.go: operations that some ranks wait for, or have given up
//
// Cost of an operation, per rank: one receive and one send here (plus one receive that finds the socket empty, which is
// how the reader learns that it may sleep), and one wake-up each way. In a burst the mailbox saves most of that. Complete
// sends, on the goroutine of its caller; the writer only runs while a rank does not read. No garbage in steady state. A
// reader that asks again for some microseconds before it sleeps was tried: on two CPUs it takes the CPU that a rank
// needs, and a round trip of two ranks went from 28 to 75 µs.
package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/worker/session/codec"
	"gorun/worker/session/slots"
	"gorun/worker/shm"
)

// Engine does what ranks submit.
type Engine interface {
	// Submit accepts a request of a rank of the world of r.Epoch, which will be completed exactly once, even
	// after Leave, or refuses it with a *collective.Error. In and Out stay mapped until Complete, and must not
	// be touched after.
	Submit(rank int, r collective.Request) error
	// Leave reports that a process submits nothing more as a rank of the world of epoch, because it sent BYE or died.
	Leave(process int, epoch uint32, rank int)
	// Resolve reports that a rank submits nothing under a name that was pending when it joined or removed a group
	// (collective.Request.Pending).
	Resolve(epoch uint32, rank int, group uint32, name string)
}

// LocalWorld is what ranks of this host learn about the world.
type LocalWorld struct {
	Epoch  uint32
	Size   int
	Hosts  int
	Places []RankPlace // of the ranks of this host
	Host   string      // its name, for messages
}

// RankPlace is the place of a process in the world.
type RankPlace struct {
	Process                               int
	Rank, LocalRank, CrossRank, CrossSize int
}

// Config is what a Server needs.
type Config struct {
	Job    string // identifies the job in WELCOME (16 bytes of it) and in the socket's name
	Engine Engine
	Log    *slog.Logger
	// Rejoin is called when a process that has left the world of an epoch waits for a later one; the epoch is 0 for one that
	// was in none. Why is the first of the last errors that were sent to it there, "" if an operation succeeded after
	// them. It may be nil.
	Rejoin     func(process int, epoch uint32, why string)
	Kept       func(epoch uint32)                    // a rank has committed its state in the world of an epoch; may be nil
	Wanted     func()                                // a process waits for the first world; may be nil
	ArenaLimit int64                                 // bytes of shared memory a rank may have
	Handshake  time.Duration                         // for a rank to send its HELLO; 10 s if 0
	Sent       func() (bytes, overRDMA uint64)       // that this host has sent to others; may be nil
	Setenv     func(process int, name, value string) // a rank set a variable of the job in its own process; may be nil
	Operations int                                   // of a rank that are in flight, or have a result that it still reads; 65536 if 0
}

// Server is the daemon's end of all sessions of a host.
type Server struct {
	cfg      Config
	listener *net.UnixListener
	wg       sync.WaitGroup
	outbox   outbox

	mu              sync.Mutex
	expected        map[int]*expected // by process
	unauthenticated int               // connections without a HELLO
	sessions        map[*session]bool
	world           *LocalWorld
	news            news
	slots           *slots.Table // of the world; may be nil
	gone            *collective.Error
	closed          bool
}

// expected is a process that may connect.
type expected struct {
	token  [32]byte
	budget *shm.Budget
	live   *session // nil if not connected
	met    bool     // it was connected, ever
	left   uint32   // the epoch of the last world that it took part in and left
	why    string   // the errors that it ended with there
}

// New returns a server; Listen and Run start it.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Handshake = cmp.Or(cfg.Handshake, 10*time.Second)
	cfg.Operations = cmp.Or(cfg.Operations, codec.MaxInFlight)
	return &Server{cfg: cfg, expected: map[int]*expected{}, sessions: map[*session]bool{}}
}

// Listen creates the socket and returns its name, which is in no file system and goes with the process.
func (s *Server) Listen() (name string, err error) {
	var random [8]byte
	rand.Read(random[:])
	job := s.cfg.Job
	if len(job) > 48 {
		job = job[:48]
	}
	name = "gorun-" + job + "-" + hex.EncodeToString(random[:])
	s.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: "@" + name})
	if err != nil {
		return "", fmt.Errorf("listen for ranks: %w", err)
	}
	return name, nil
}

// Expect lets a process connect with that token, once at a time. A second call replaces the token.
func (s *Server) Expect(process int, token [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.expected[process]; e != nil {
		e.token = token
		return
	}
	s.expected[process] = &expected{token: token, budget: shm.NewBudget(s.cfg.ArenaLimit)}
}

// SetWorld lets the ranks begin, now or when they connect. A rank that has left this world waits for one of a larger
// epoch.
func (s *Server) SetWorld(w LocalWorld) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world = &w
	s.setSlotsLocked(w)
	for x := range s.sessions {
		s.welcomeLocked(x)
	}
}

// news is what is known about the hosts since the world of an epoch was planned.
type news struct {
	epoch          uint32
	added, removed bool
	stamp          int64
}

// Changed notifies the ranks of an epoch's world that it could be another one. A rank that is not there yet, since it
// may take seconds to begin, is notified when it connects.
func (s *Server) Changed(epoch uint32, added, removed bool, stamp int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch == s.news.epoch {
		added, removed = added || s.news.added, removed || s.news.removed
	}
	s.news = news{epoch, added, removed, stamp}
	for x := range s.sessions {
		if x.known() && x.epoch == epoch {
			x.sendChanged(s.news)
		}
	}
}

// Run serves until ctx ends; then it closes all sessions and returns when every goroutine has.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		return errors.New("serve ranks: not listening")
	}
	accepting, stop := context.WithCancel(ctx)
	s.wg.Go(func() {
		<-accepting.Done()
		s.listener.Close()
	})
	err := s.accept()
	stop()
	if ctx.Err() != nil {
		err = nil
	}
	s.mu.Lock()
	s.closed = true
	s.dropSlotsLocked()
	for x := range s.sessions {
		x.conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

func (s *Server) accept() error {
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
			s.cfg.Log.Warn("accept rank", "err", err)
			time.Sleep(10 * time.Millisecond) // until some descriptor is free
			continue
		}
		if err != nil {
			return fmt.Errorf("accept rank: %w", err)
		}
		x, err := newSession(s, conn)
		if err != nil {
			s.cfg.Log.Warn("refuse connection", "err", err)
			conn.Close()
			continue
		}
		if !s.add(x) {
			conn.Close()
			continue
		}
		s.wg.Go(x.write)
		s.wg.Go(x.serve)
	}
}

// add registers a connection, unless too many of them have sent no HELLO.
func (s *Server) add(x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.unauthenticated > 16+2*len(s.expected) {
		return false
	}
	s.unauthenticated++
	s.sessions[x] = true
	return true
}

// admit decides whether the sender of a HELLO may stay. The token is checked before anything else is believed.
func (s *Server) admit(x *session, h codec.Hello) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.expected[h.Process]
	if e == nil || subtle.ConstantTimeCompare(e.token[:], h.Token[:]) != 1 {
		return fmt.Errorf("process %d (pid %d): wrong number or token", h.Process, x.pid)
	}
	s.unauthenticated--
	x.process, x.budget = h.Process, e.budget
	if h.Version != codec.Version {
		x.refuse(fmt.Sprintf("the daemon speaks version %d of the rank protocol, this binding version %d", codec.Version, h.Version))
		return fmt.Errorf("process %d: version %d", h.Process, h.Version)
	}
	if e.live != nil {
		x.refuse(fmt.Sprintf("rank %d is connected already, by process %d", h.Process, e.live.pid))
		return fmt.Errorf("process %d (pid %d): is connected already, by pid %d", h.Process, x.pid, e.live.pid)
	}
	e.live, e.met = x, true
	if s.gone != nil {
		x.sendGone(s.gone)
	}
	s.welcomeLocked(x)
	return nil
}

// welcomeLocked answers a hello once the world is known.
func (s *Server) welcomeLocked(x *session) {
	if s.world == nil || !x.known() || s.expected[x.process].live != x || x.size.Load() > 0 || s.world.Epoch <= s.expected[x.process].left {
		return
	}
	for _, p := range s.world.Places {
		if p.Process == x.process {
			x.epoch, x.rank = s.world.Epoch, p.Rank
			if x.slots = s.slots; x.slots != nil {
				x.slots.Region().Retain()
			}
			x.welcome(*s.world, p, s.cfg.Job)
			if s.news.epoch == x.epoch {
				x.sendChanged(s.news)
			}
		}
	}
}

// Met reports whether a process has ever connected.
func (s *Server) Met(process int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expected[process] != nil && s.expected[process].met
}

// PID returns the id of the process that has a session now, 0 if none has.
func (s *Server) PID(process int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.expected[process]; e != nil && e.live != nil {
		return int(e.live.pid)
	}
	return 0
}

// Arena returns the bytes of shared memory that a process has for its tensors.
func (s *Server) Arena(process int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.expected[process]; e != nil {
		return e.budget.Used()
	}
	return 0
}

// want reports that a process waits for the first world.
func (s *Server) want() {
	s.mu.Lock()
	none := s.world == nil
	s.mu.Unlock()
	if none && s.cfg.Wanted != nil {
		s.cfg.Wanted()
	}
}

// rejoin reports that the session's process waits for a later world than the one it has left, or for its first.
func (s *Server) rejoin(x *session) {
	s.mu.Lock()
	left, why := s.expected[x.process].left, s.expected[x.process].why
	waits := x.epoch == 0
	s.mu.Unlock()
	if waits && s.cfg.Rejoin != nil {
		s.cfg.Rejoin(x.process, left, why)
	}
}

// leave notifies the engine, once, that the session's rank submits nothing more in its world, and then lets the rank
// connect again. A rank that has no world yet has none to leave.
func (s *Server) leave(x *session) {
	s.mu.Lock()
	e := s.expected[x.process]
	live := x.known() && e != nil && e.live == x
	epoch, rank := x.epoch, x.rank
	s.mu.Unlock()
	if !live {
		return
	}
	if epoch > 0 {
		s.leaveSlots(x)
		s.cfg.Engine.Leave(x.process, epoch, rank)
	}
	x.mu.Lock()
	why := x.whyLocked()
	x.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e.live = nil
	if x.epoch > e.left {
		e.left, e.why = x.epoch, why
	}
}

// remove forgets a connection that has ended.
func (s *Server) remove(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x)
	if !x.known() {
		s.unauthenticated--
	}
}
