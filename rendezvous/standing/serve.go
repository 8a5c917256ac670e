package standing

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorun/rendezvous/authority"
	"gorun/rendezvous/gossip"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

const (
	// handshakeTimeout is how long a connection may take to authenticate and send its request.
	handshakeTimeout = 10 * time.Second
	// cleanupGrace is how long a host waits for the slots of a job that is just ending after its launcher was killed.
	// It is short: a job that holds slots elsewhere must not wait long for one that does so here.
	cleanupGrace = 8 * time.Second
	// answerTimeout is how long a launcher may leave an answer unread.
	answerTimeout = 30 * time.Second
	// discoveryGrace is how long a new daemon may not know all the others.
	discoveryGrace = 30 * time.Second
	// rejoinInterval is the interval between attempts to find lost members.
	rejoinInterval = 5 * time.Second
	// warnAfter is how long a daemon looks for any other before it warns.
	warnAfter = 3 * time.Second
	// announceDelay delays the news that more slots are in use. The queue holder knows, since it granted them, and so a
	// short job does not cause messages from every host to every other.
	announceDelay = 5 * time.Second
)

// ErrLeave is the cancellation cause that makes Serve end at once and leave the jobs to its successor.
var ErrLeave = errors.New("the jobs are left to the next daemon")

// Config configures one daemon.
type Config struct {
	Key      Key
	Name     string // of this host, unique in the cluster
	Version  string
	Slots    int
	Listener net.Listener // for launchers; Serve closes it
	Bind     string       // address on which gossip listens
	Address  string       // where other daemons reach this host
	Port     int          // of gossip, 0 for a free one
	Join     []string     // gossip addresses of some other daemons, host:port
	// Command prepares the daemon of one job, except its standard streams. Its input is a socket for resume.Receive.
	Command func() *exec.Cmd
	// Failover takes over jobs whose launchers are dead; nil if this host does not.
	Failover Failover
	// Launchers runs launchers of detached jobs; nil for none.
	Launchers Launchers
	Log       *slog.Logger
	// Ready is called once, when this host takes jobs, with its gossip address.
	Ready func(gossip string)

	takeTimeout time.Duration // how long a launcher that waited may leave its slots untaken, 0 for answerTimeout
}

// server is the state of one daemon.
type server struct {
	cfg      Config
	tls      *tls.Config
	gossip   *gossip.Gossip
	read     map[string]introduction // what members announce, decoded, by name; only refresh uses it
	wg       sync.WaitGroup
	born     int64
	jobs     jobs
	electors electors

	stirred chan struct{} // a job has started or ended

	unauthenticated *unauthenticated

	mu         sync.Mutex
	prestarted *process // nil if there is none
	noPrestart bool     // no more are started
	queue      queue
	queueAddr  string        // address of the queue holder, "" for this host
	used       int           // slots of the jobs on this host
	draining   bool          // takes no more jobs
	news       chan struct{} // closed and replaced whenever any of this changes
	conns      map[net.Conn]bool
	hungUp     bool // connections are closed because this daemon ends
}

// Serve takes jobs until ctx ends. Then it waits for the running ones, and ends them when now is closed.
func Serve(ctx context.Context, now <-chan struct{}, cfg Config) error {
	defer cfg.Listener.Close()
	cfg.takeTimeout = cmp.Or(cfg.takeTimeout, answerTimeout)
	channel, err := cfg.Key.channel()
	if err != nil {
		return err
	}
	secret, err := cfg.Key.derive("gossip", 32)
	if err != nil {
		return err
	}
	// Daemons in one network namespace share their sockets' names but not a port, so the port tells their jobs apart.
	_, port, err := net.SplitHostPort(cfg.Listener.Addr().String())
	if err != nil {
		return fmt.Errorf("name jobs: %w", err)
	}
	name, err := cfg.Key.derive("jobs "+port, 8)
	if err != nil {
		return err
	}
	s := &server{cfg: cfg, tls: channel, born: time.Now().UnixNano(), stirred: make(chan struct{}, 1), unauthenticated: newUnauthenticated(), news: make(chan struct{}), conns: map[net.Conn]bool{}, read: map[string]introduction{}}
	s.jobs = jobs{cluster: hex.EncodeToString(name), running: map[string]*job{}}
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
	s.gossip, err = gossip.Start(gossip.Config{Name: cfg.Name, Job: "cluster", Key: secret, Bind: cfg.Bind, Advertise: cfg.Address, Port: cfg.Port, Meta: meta, Log: cfg.Log})
	if err != nil {
		return err
	}
	work, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.refresh()
	s.wg.Go(func() { s.watch(work) })
	s.wg.Go(func() { s.accept(work) })
	s.wg.Go(func() { s.seek(work) })
	if err := s.loadElectors(); err != nil {
		cfg.Log.Warn("jobs to carry on", "err", err)
	}
	s.wg.Go(func() { s.runElectors(work) })
	s.wg.Go(func() { s.keepPrestarted(ctx) })
	if cfg.Ready != nil {
		cfg.Ready(s.gossip.Addr())
	}
	<-ctx.Done()
	leave := errors.Is(context.Cause(ctx), ErrLeave)
	if !leave {
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

// about returns what this daemon announces.
func (s *server) about() (wire.ClusterMember, error) {
	_, port, err := net.SplitHostPort(s.cfg.Listener.Addr().String())
	if err != nil {
		return wire.ClusterMember{}, fmt.Errorf("read listener address: %w", err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return wire.ClusterMember{}, fmt.Errorf("read listener address: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return wire.ClusterMember{Port: n, Version: s.cfg.Version, Slots: s.cfg.Slots, Used: s.used, Draining: s.draining, Born: s.born}, nil
}

// change applies f to the state and wakes all waiters.
func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.announce()
}

// announce is called with mu held.
func (s *server) announce() {
	s.queue.follow()
	s.queue.grant()
	close(s.news)
	s.news = make(chan struct{})
}

// seek joins the other daemons, and keeps looking for members that have disappeared: they may return, or a partition
// may heal.
func (s *server) seek(ctx context.Context) {
	if len(s.cfg.Join) > 0 {
		if !s.join(ctx) {
			return
		}
		s.cfg.Log.Info("joined", "hosts", strings.Join(s.cfg.Join, ","))
	}
	seen := map[string]string{} // gossip addresses by name
	tick := time.NewTicker(rejoinInterval)
	defer tick.Stop()
	for {
		missing := maps.Clone(seen)
		for _, m := range s.gossip.Members() {
			seen[m.Name] = m.Gossip
			delete(missing, m.Name)
		}
		for _, addr := range missing { // one at a time, as an attempt may take seconds
			s.gossip.TryJoin(addr)
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// join finds one of the configured daemons. The hosts of a cluster may start in any order, so it never gives up; it
// warns once about those it cannot find.
func (s *server) join(ctx context.Context) bool {
	early, stop := context.WithTimeout(ctx, warnAfter)
	err := s.gossip.Join(early, s.cfg.Join)
	stop()
	if err == nil || ctx.Err() != nil {
		return err == nil
	}
	s.cfg.Log.Warn("finds none of the hosts to join: are their names, ports and the key right? Goes on trying, as a cluster of its own", "err", err)
	return s.gossip.Join(ctx, s.cfg.Join) == nil
}

// watch exchanges announcements with the other daemons.
func (s *server) watch(ctx context.Context) {
	var said wire.ClusterMember
	var fuller time.Time // since when more slots are in use than announced, and nothing else changed
	grown := time.NewTimer(discoveryGrace)
	defer grown.Stop()
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		wait := time.Second
		switch about, err := s.about(); {
		case err != nil || about == said:
			fuller = time.Time{}
		case onlyFuller(said, about) && fuller.IsZero():
			fuller, wait = time.Now(), announceDelay
		case onlyFuller(said, about) && time.Since(fuller) < announceDelay:
			wait = announceDelay - time.Since(fuller)
		default:
			s.tell(&said, about)
			fuller = time.Time{}
			s.refresh()
		}
		retry := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			retry.Stop()
			return
		case <-s.gossip.Changes():
			s.refresh()
		case <-s.gossip.Events(): // membership with host ids, which clusters do not use
		case <-news:
		case <-grown.C:
			s.change(func() { s.queue.discovering = false })
		case <-retry.C:
		}
		retry.Stop()
	}
}

// onlyFuller reports whether the only change is that more slots are in use.
func onlyFuller(before, now wire.ClusterMember) bool {
	more := now.Used > before.Used
	now.Used = before.Used
	return more && now == before
}

// tell announces what changed about this daemon. It retries soon after a failure.
func (s *server) tell(said *wire.ClusterMember, about wire.ClusterMember) {
	meta, err := wire.Marshal(&about)
	if err == nil {
		err = s.gossip.SetMeta(meta)
	}
	*said = about
	if err != nil {
		s.cfg.Log.Debug("gossip", "err", err)
		*said = wire.ClusterMember{}
	}
}

// introduction is what a member announces, encoded and decoded.
type introduction struct {
	meta  []byte
	about *wire.ClusterMember // nil if this version cannot decode it
}

// introduce decodes what a member announces, once: every announcement makes refresh look at all members.
func (s *server) introduce(m gossip.Member) *wire.ClusterMember {
	if known, ok := s.read[m.Name]; ok && bytes.Equal(known.meta, m.Meta) {
		return known.about
	}
	msg, err := wire.Unmarshal(m.Meta)
	about, ok := msg.(*wire.ClusterMember)
	if err != nil || !ok || about.Slots < 0 || about.Used < 0 {
		about = nil // of another version of gorun
	}
	s.read[m.Name] = introduction{m.Meta, about}
	return about
}

// refresh adopts the members that gossip knows, if they have changed.
func (s *server) refresh() {
	var hosts []wire.MemberState
	for _, m := range s.gossip.Members() {
		about := s.introduce(m)
		if about == nil {
			continue
		}
		hosts = append(hosts, wire.MemberState{Host: m.Name, Addr: net.JoinHostPort(m.Addr, strconv.Itoa(about.Port)),
			Slots: about.Slots, Used: about.Used, Draining: about.Draining, Version: about.Version, Born: about.Born})
	}
	slices.SortFunc(hosts, func(a, b wire.MemberState) int { return strings.Compare(a.Host, b.Host) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(hosts, s.queue.hosts) {
		return
	}
	s.queue.hosts, s.queueAddr = hosts, ""
	for _, h := range hosts {
		s.queue.seen[h.Host] = true
	}
	if i := slices.IndexFunc(hosts, func(h wire.MemberState) bool { return !h.Draining }); i >= 0 && hosts[i].Host != s.cfg.Name {
		s.queueAddr = hosts[i].Addr
	}
	s.announce()
}

func (s *server) accept(ctx context.Context) {
	for {
		conn, err := s.cfg.Listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
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
		from := origin(conn.RemoteAddr())
		if !s.unauthenticated.admit(from) {
			s.refused(conn, errors.New("too many at once that have not shown the key"))
			conn.Close()
			continue
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		if ctx.Err() != nil { // hangUp may have passed before
			conn.Close()
		}
		s.wg.Go(func() {
			s.meet(ctx, conn, sync.OnceFunc(func() { s.unauthenticated.release(from) }))
			conn.Close()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		})
	}
}

// refused logs a failed handshake, at a limited rate.
func (s *server) refused(conn net.Conn, err error) {
	if s.unauthenticated.warn(origin(conn.RemoteAddr()), time.Now()) {
		s.cfg.Log.Warn("refused a connection; says no more of that address for a minute", "from", conn.RemoteAddr(), "err", err)
	}
}

// meet handles a launcher's request. It calls known once the launcher has authenticated.
func (s *server) meet(ctx context.Context, raw net.Conn, known func()) {
	defer known()
	if tcp, ok := raw.(*net.TCPConn); ok {
		tcp.SetKeepAliveConfig(keepAlive)
	}
	raw.SetDeadline(time.Now().Add(handshakeTimeout))
	conn := tls.Server(raw, s.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		s.refused(raw, err)
		return
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	request, err := wire.NewReader(in).Read()
	if err != nil {
		return
	}
	raw.SetDeadline(time.Time{})
	known()
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
		s.answer(conn, s.listing(request.Here))
	case *wire.Keep:
		s.elect(conn, request.Job, authority.Event{Keep: request})
	case *wire.Vote:
		s.elect(conn, request.Job, authority.Event{Vote: request})
	default:
		s.answer(conn, &wire.Refused{Text: fmt.Sprintf("unexpected %T", request)})
	}
}

// reserveHint accompanies refusals of slots.
const reserveHint = "gorun ps --cluster … shows what there is"

func (s *server) answer(conn net.Conn, m wire.Message) bool {
	conn.SetWriteDeadline(time.Now().Add(answerTimeout))
	err := wire.NewWriter(conn).Write(m)
	conn.SetWriteDeadline(time.Time{})
	return err == nil
}

func (s *server) refuse(conn net.Conn, hint, format string, args ...any) {
	s.answer(conn, &wire.Refused{Text: fmt.Sprintf(format, args...), Hint: hint})
}

func (s *server) otherVersion(conn net.Conn, theirs string) bool {
	if theirs == s.cfg.Version {
		return false
	}
	s.refuse(conn, "run the same gorun binary on every host", "the daemon is gorun %s, this is %s", s.cfg.Version, theirs)
	return true
}

// reserve keeps a job in the queue until its launcher closes the connection.
func (s *server) reserve(conn net.Conn, in io.Reader, r *wire.Reserve) {
	if len(r.Held) == 0 && s.otherVersion(conn, r.Version) { // a running job may outlive its version, but a new one must match
		return
	}
	t := &ticket{request: *r, since: time.Now()}
	takes, gone := make(chan struct{}), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(gone)
		if _, err := wire.NewReader(in).Read(); err == nil {
			close(takes)
			io.Copy(io.Discard, in) // nothing more is expected
		}
	})
	defer reading.Wait()
	defer conn.Close()
	if !s.enqueue(conn, t) {
		return
	}
	defer s.change(func() { s.queue.remove(t) })
	answers := reservation{server: s, conn: conn, ticket: t, first: true}
	for {
		news, ok := answers.report(takes != nil)
		if !ok {
			return
		}
		select {
		case <-news:
		case <-takes:
			takes, answers.first, answers.late = nil, true, nil
		case <-answers.late:
			s.cfg.Log.Warn("slots go back: the launcher that waited for them does not answer; is it stopped?",
				"user", r.User, "program", r.Program)
			return
		case <-gone:
			return
		}
	}
}

// enqueue puts a job into the queue. Otherwise it answers the launcher and returns false.
func (s *server) enqueue(conn net.Conn, t *ticket) bool {
	s.mu.Lock()
	var err error
	queueAddr := s.queueAddr
	if queueAddr == "" {
		if err = s.queue.add(t); err == nil {
			s.announce()
		}
	}
	s.mu.Unlock()
	switch {
	case queueAddr != "":
		s.answer(conn, &wire.Elsewhere{Addr: queueAddr})
		return false
	case err != nil:
		_, small := errors.AsType[*smallError](err)
		s.answer(conn, &wire.Refused{Text: err.Error(), Hint: reserveHint, Small: small})
		return false
	}
	return true
}

// reservation is what the launcher of a job in the queue knows of its place there.
type reservation struct {
	server *server
	conn   net.Conn
	ticket *ticket
	first  bool             // the launcher is to hear of its slots although they are as before
	reason string           // the last reason why the job waits, "" if it never did
	shares []wire.Share     // the slots that were granted last
	late   <-chan time.Time // fires when the launcher has not confirmed the slots, nil if it need not
}

// report answers the launcher if something is new for it. It returns what is closed at the next change of the queue; ok is
// false if the connection is of no more use. A launcher that has waited may be stopped by now: if it has not confirmed any
// slots yet, it is asked to.
func (r *reservation) report(unconfirmed bool) (news <-chan struct{}, ok bool) {
	s := r.server
	s.mu.Lock()
	news, queueAddr, granted, shares, others, reason := s.news, s.queueAddr, r.ticket.granted, r.ticket.shares, s.others(), ""
	if !granted {
		reason = s.queue.waitsFor(r.ticket)
	}
	s.mu.Unlock()
	switch {
	case queueAddr != "":
		s.answer(r.conn, &wire.Elsewhere{Addr: queueAddr})
		return nil, false
	case granted && (r.first || !slices.Equal(shares, r.shares)):
		ask := r.reason != "" && unconfirmed
		if ask && r.late == nil {
			r.late = time.After(s.cfg.takeTimeout)
		}
		r.first, r.shares = false, shares
		return news, s.answer(r.conn, &wire.Granted{Shares: shares, Others: others, Ask: ask})
	case !granted && reason != r.reason:
		r.reason = reason
		return news, s.answer(r.conn, &wire.Queued{Text: reason, Others: others})
	}
	return news, true
}

// others returns where else the cluster can be asked. It is called with mu held.
func (s *server) others() []string {
	var out []string
	for _, h := range s.queue.hosts {
		out = append(out, h.Addr)
	}
	return out
}

// take counts slots as used. It waits a moment for slots of a job that has just ended.
func (s *server) take(n int) error {
	timeout := time.NewTimer(cleanupGrace)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		news, used, draining := s.news, s.used, s.draining
		if !draining && used+n <= s.cfg.Slots {
			s.used += n
			s.announce()
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		if draining {
			return errors.New("the daemon is being stopped")
		}
		select {
		case <-news:
		case <-timeout.C:
			return fmt.Errorf("%d of %s in use by other jobs", used, topology.Count(s.cfg.Slots, "slot"))
		}
	}
}

// listing returns the queue, if this host holds it, or else what this host knows.
func (s *server) listing(here bool) wire.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queueAddr != "" && !here {
		return &wire.Elsewhere{Addr: s.queueAddr}
	}
	out := &wire.Jobs{Members: slices.Clone(s.queue.hosts)}
	promised := s.queue.promised()
	for i, m := range out.Members {
		out.Members[i].Used = max(m.Used, promised[m.Host])
	}
	for _, t := range s.queue.tickets {
		ranks := 0
		for _, share := range t.shares {
			ranks += share.Slots
		}
		out.Jobs = append(out.Jobs, wire.JobState{User: t.request.User, Program: t.request.Program, Ranks: max(ranks, t.request.Ranks), Shares: t.shares,
			Seconds: int(time.Since(t.since).Seconds())})
	}
	return out
}
