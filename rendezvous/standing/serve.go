package standing

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"gorun/collective/admit"
	"gorun/rendezvous/audit"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/gossip"
	"gorun/rendezvous/keytls"
	"gorun/rendezvous/wire"
)

const (
	// handshakeTimeout is how long a connection may take to authenticate and send its request.
	handshakeTimeout = 10 * time.Second
	// answerTimeout is how long a launcher may leave an answer unread, and a candidate a vote beyond the time for its bytes.
	answerTimeout = 30 * time.Second
)

// ErrLeave is the cancellation cause that makes Serve end at once and leave the jobs to its successor.
var ErrLeave = errors.New("the jobs are left to the next daemon")

// Config configures one daemon.
type Config struct {
	Key     Key
	Name    string // of this host, unique in the cluster
	Version string
	Slots   int
	// RequireEncrypt refuses jobs that do not encrypt what their hosts send each other.
	RequireEncrypt bool

	Listener net.Listener // for launchers; Serve closes it
	Bind     string       // address on which gossip listens
	Address  string       // where other daemons reach this host
	Port     int          // of gossip, 0 for a free one
	Join     []string     // gossip addresses of some other daemons, host:port
	// Look returns gossip addresses of more daemons, ip:port, as they are now; nil for none. This host may be among them.
	Look func(context.Context) []string
	// Command prepares the daemon of one job, except its standard streams. Its input is a socket for resume.Receive.
	Command func() *exec.Cmd
	// Failover takes over jobs whose launchers are dead; nil if this host does not.
	Failover Failover
	// Launchers runs launchers of detached jobs; nil for none.
	Launchers Launchers
	Log       *slog.Logger
	// Audit takes what this daemon was asked to do; nil for no such log. The caller closes it after Serve.
	Audit *audit.Log
	// Observe, unless nil, gets a function that says what the daemon does, until Serve returns.
	Observe func(stats func() Stats)
	// Ready is called once, when this host takes jobs, with its gossip address.
	Ready func(gossip string)

	takeTimeout time.Duration // how long a launcher that waited may leave its slots untaken, 0 for answerTimeout
}

// server is the state of one daemon.
type server struct {
	cfg      Config
	channel  *keytls.Ring
	keys     []string // fingerprints
	gossip   *gossip.Gossip
	read     map[string]introduction // what members announce, decoded, by address; only refresh uses it
	wg       sync.WaitGroup
	born     time.Time
	jobs     jobs
	electors electors
	next     prestart      // daemon of a job
	answered chan struct{} // a host that gossip names has answered

	door    admit.Door
	warned  recent[netip.Prefix]
	journal journal

	mu        sync.Mutex
	known     map[place]bool // hosts that gossip names, and whether each has answered
	queue     queue
	queueAddr string        // address of the queue holder, "" for this host
	used      int           // slots of the jobs on this host
	draining  bool          // takes no more jobs
	news      chan struct{} // closed and replaced whenever any of this changes
	conns     map[net.Conn]bool
	hungUp    bool // connections are closed because this daemon ends
}

// Serve takes jobs until ctx ends. Then it waits for the running ones, and ends them when now is closed.
func Serve(ctx context.Context, now <-chan struct{}, cfg Config) error {
	defer cfg.Listener.Close()
	cfg.takeTimeout = cmp.Or(cfg.takeTimeout, answerTimeout)
	channel, err := cfg.Key.channel()
	if err != nil {
		return err
	}
	secrets, err := cfg.Key.derive("gossip", 32)
	if err != nil {
		return err
	}
	// Daemons in one network namespace share their sockets' names but not a port, so the port distinguishes their jobs.
	_, port, err := net.SplitHostPort(cfg.Listener.Addr().String())
	if err != nil {
		return fmt.Errorf("name jobs: %w", err)
	}
	s := &server{cfg: cfg, channel: channel, keys: cfg.Key.Fingerprints(), born: time.Now(),
		next:     prestart{command: cfg.Command, log: cfg.Log, stirred: make(chan struct{}, 1)},
		answered: make(chan struct{}, 1), news: make(chan struct{}), conns: map[net.Conn]bool{}, read: map[string]introduction{}}
	s.electors = electors{name: cfg.Name, failover: cfg.Failover, log: cfg.Log, born: s.born, note: s.journal.note, ask: s.askHost,
		jobs: map[string]*elector{}}
	s.journal.log, s.journal.launchers = cfg.Audit, cfg.Launchers
	s.door.Timeout = handshakeTimeout
	s.jobs = jobs{cluster: port, running: map[string]*job{}}
	s.queue.seen, s.queue.discovering = map[string]bool{}, true
	s.adopt()
	about, err := s.about()
	if err != nil {
		return err
	}
	meta, err := wire.Marshal(&about)
	if err != nil {
		return err
	}
	s.gossip, err = gossip.Start(gossip.Config{Name: cfg.Name, Job: "cluster", Key: secrets[0], Accept: secrets[1:], Bind: cfg.Bind, Advertise: cfg.Address, Port: cfg.Port, Meta: meta, Log: cfg.Log})
	if err != nil {
		return err
	}
	work, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.refresh(work)
	s.wg.Go(func() { s.watch(work) })
	s.wg.Go(func() { s.accept(work) })
	s.wg.Go(func() { s.seek(work) })
	if err := s.electors.load(); err != nil {
		cfg.Log.Warn("jobs to carry on", "err", err)
	}
	s.wg.Go(func() { s.electors.run(work) })
	s.wg.Go(func() { s.next.keep(ctx) })
	if cfg.Observe != nil {
		cfg.Observe(s.stats)
	}
	if cfg.Ready != nil {
		cfg.Ready(s.gossip.Addr())
	}
	s.journal.note(audit.Entry{What: "begin", Slots: cfg.Slots, Detail: fmt.Sprintf("gorun %s, accepts keys %s", cfg.Version, strings.Join(s.keys, " "))})
	<-ctx.Done()
	leave := errors.Is(context.Cause(ctx), ErrLeave)
	if leave {
		s.journal.note(audit.Entry{What: "hand over"})
	} else {
		s.journal.note(audit.Entry{What: "drain"})
		defer s.journal.note(audit.Entry{What: "end"})
		s.drain(now)
		s.endJobs()
		s.gossip.Leave() // a courtesy
	}
	cancel()
	cfg.Listener.Close()
	s.hangUp()
	s.wg.Wait()
	if leave {
		s.leaveJobs()
	}
	return s.gossip.Close()
}

// drain waits until no job runs here or now is closed.
func (s *server) drain(now <-chan struct{}) {
	s.change(func() { s.draining = true })
	for {
		s.mu.Lock()
		used, news := s.used, s.news
		s.mu.Unlock()
		if used == 0 {
			return
		}
		select {
		case <-news:
		case <-now:
			return
		}
	}
}

// hangUp closes every connection.
func (s *server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hungUp = true
	for c := range s.conns {
		c.Close()
	}
}

func (s *server) accept(ctx context.Context) {
	for {
		raw, err := s.cfg.Listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				raw.Close()
			}
			return
		}
		if err != nil { // too many open files, for example: it passes
			s.cfg.Log.Warn("accept", "err", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return
			}
			continue
		}
		if tcp, ok := raw.(*net.TCPConn); ok {
			tcp.SetKeepAliveConfig(keepAlive)
		}
		conn := s.door.Enter(raw)
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		if ctx.Err() != nil { // hangUp may have passed before
			conn.Close()
		}
		s.wg.Go(func() {
			s.meet(ctx, conn)
			conn.Close()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		})
	}
}

// refused logs a failed handshake, at a limited rate.
func (s *server) refused(conn net.Conn, err error) {
	s.journal.mu.Lock()
	s.journal.refused++
	s.journal.mu.Unlock()
	if first, room := s.warned.first(admit.Origin(conn.RemoteAddr()), time.Now(), warnInterval); first && room {
		s.journal.note(audit.Entry{What: "connect", From: conn.RemoteAddr().String(), Result: audit.Refused, Why: err.Error()})
		s.cfg.Log.Warn("refused a connection; says no more of that address for a minute", "from", conn.RemoteAddr(), "err", err)
	}
}

// meet handles a launcher's request.
func (s *server) meet(ctx context.Context, raw *admit.Conn) {
	secure, key, err := s.channel.Server(ctx, raw)
	if err = raw.Why(err); err != nil {
		// Probes only check whether the port is open, and close without sending a byte. A peer that sends none and
		// keeps the connection open is no probe.
		if raw.Heard() || errors.Is(err, admit.ErrCrowded) || errors.Is(err, os.ErrDeadlineExceeded) {
			s.refused(raw, err)
		}
		return
	}
	raw.Known()
	raw.SetDeadline(time.Now().Add(handshakeTimeout))
	in := bufio.NewReaderSize(secure, 64<<10)
	size, err := wire.Coming(in)
	if err != nil {
		return
	}
	raw.SetDeadline(time.Now().Add(authority.Patient(handshakeTimeout, size)))
	request, err := wire.NewReader(in).Read()
	if err != nil {
		return
	}
	raw.SetDeadline(time.Time{})
	conn := &audited{secure, s.journal.note, requested(request, raw.RemoteAddr(), s.keys[key])}
	switch request := request.(type) {
	case *wire.Reserve:
		s.reserve(conn, in, request)
	case *wire.Serve:
		s.serve(conn, in, request)
	case *wire.Resume:
		s.resume(conn, in, request)
	case *wire.Detach:
		s.detach(ctx, conn, in, request)
	case *wire.AskDetached:
		s.listDetached(conn)
	case *wire.Reach:
		s.reach(conn, in, request)
	case *wire.AskJobs:
		answer(conn, s.listing(request.Here))
	case *wire.Keep:
		s.electors.elect(conn, request.Job, request)
	case *wire.Vote:
		s.electors.elect(conn, request.Job, request)
	default:
		answer(conn, &wire.Refused{Text: fmt.Sprintf("unexpected %T", request)})
	}
}

func answer(conn net.Conn, m wire.Message) bool {
	limit := answerTimeout
	if v, ok := m.(*wire.Voted); ok {
		limit = authority.Patient(limit, len(v.Value))
	}
	conn.SetWriteDeadline(time.Now().Add(limit))
	err := wire.NewWriter(conn).Write(m)
	conn.SetWriteDeadline(time.Time{})
	if a, ok := conn.(*audited); ok {
		a.note(m)
	}
	return err == nil
}

func refuse(conn net.Conn, hint, format string, args ...any) {
	answer(conn, &wire.Refused{Text: fmt.Sprintf(format, args...), Hint: hint})
}

const sameVersion = "run the same gorun binary on every host"

func otherVersion(conn net.Conn, theirs, ours string) bool {
	if theirs == ours {
		return false
	}
	refuse(conn, sameVersion, "the daemon is gorun %s, this is %s", ours, theirs)
	return true
}
