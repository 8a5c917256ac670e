package resume

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gorun/rendezvous/liveness"
)

// The first byte of a connection to Serve is its purpose.
const (
	carry  byte = 'R' // carry the stream; a mark, a token and the stream's frames follow
	adopt  byte = 'A' // take the stream over from another launcher; as carry, with a term before the token
	orphan byte = 'O' // the launcher closed the connection with the mark that follows
	finish byte = 'E' // end the stream, for a launcher of the term that follows
	watch  byte = 'W' // notice the end of the process
)

const (
	markSize = 8
	termSize = 8
	// TokenSize is the size of the random token that identifies a launcher.
	TokenSize = 32
)

// Timeouts limit how long Serve waits for a connection.
type Timeouts struct {
	First  time.Duration // for the first one
	Broken time.Duration // after one that broke: the resident daemon is being replaced
	Orphan time.Duration // after one that the launcher closed, most likely as it was killed, or that fell silent
	// Silent returns how long a launcher may send nothing before its connection counts as broken, 0 for no limit. Nil
	// for no limit.
	Silent func() time.Duration
	// Extend is called when a timeout expires, with how long the launcher has been waited for. If it returns true,
	// Serve waits as long again. Nil for no extension.
	Extend func(waited time.Duration) bool
	// Connected is called when a connection starts or stops carrying the stream. It must not block. May be nil.
	Connected func(bool)
}

// Timeouts of a job's daemon whose launcher reaches it by a resident daemon, which may be being replaced, or by logins,
// when a live launcher notices the end of its connection and logs in again.
var (
	ResidentTimeouts = Timeouts{First: timing.FirstConnection, Broken: timing.ResidentGrace, Orphan: timing.BrokenGrace}
	LoginTimeouts    = Timeouts{First: timing.FirstConnection, Broken: timing.BrokenGrace, Orphan: timing.BrokenGrace}
)

// timing decides how often to look for a silent launcher, how late a timer is only if this host was paused, and how
// long its peers have to reconnect afterwards. A job's own scale is not known yet when its stream begins.
var timing = liveness.Default()

// acceptPause is how long Serve waits after a connection that it could not accept.
const acceptPause = 10 * time.Millisecond

// MaxTerm is greater than the term of any launcher.
const MaxTerm = ^uint64(0)

// Serve accepts connections that carry the stream until the stream is over; then it shuts the listener. The stream
// belongs to the first token that arrives, until a launcher with a greater term adopts it. Serve returns when ctx ends,
// after the job has ended; that also ends the connections that watch.
func Serve(ctx context.Context, l net.Listener, r *Relay, p Timeouts) {
	v := &server{relay: r, timeouts: p, conns: map[net.Conn]bool{}, waits: true, term: 1}
	v.due = time.Now().Add(p.First)
	v.timer = time.AfterFunc(p.First, v.expire)
	defer v.timer.Stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for s := r.current(); ; {
			s.mu.Lock()
			for s.err == nil && !s.peerClosed {
				s.changed.Wait()
			}
			s.mu.Unlock()
			next := r.current()
			if next == s {
				break
			}
			s = next
		}
		shut(l)
		l.Close()
		v.hangUp()
	})
	for number := uint64(1); ; number++ {
		conn, err := l.Accept()
		if err != nil && (errors.Is(err, net.ErrClosed) || r.current().Over()) {
			break
		}
		if err != nil { // too many open files, for example: it passes
			time.Sleep(acceptPause)
			continue
		}
		wg.Go(func() {
			defer conn.Close()
			if v.admit(conn) {
				v.meet(ctx, conn, number)
				v.forget(conn)
			}
		})
	}
	<-ctx.Done()
	wg.Wait()
}

type server struct {
	relay    *Relay
	timeouts Timeouts
	timer    *time.Timer
	last     atomic.Uint64 // number of the latest connection for the stream

	mu       sync.Mutex
	conns    map[net.Conn]bool
	over     bool
	waits    bool          // the timer runs
	due      time.Time     // when the timer expires
	interval time.Duration // its present duration
	since    time.Time     // when it was first set
	term     uint64        // of the launcher
	token    []byte        // of the launcher, nil until the first connects
	mark     string        // identifies the connection that carries the stream
	orphaned bool          // its launcher closed it
	silent   bool          // it is open, but its launcher sends nothing
}

func (v *server) admit(conn net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.conns[conn] = true
	return !v.over
}

func (v *server) forget(conn net.Conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.conns, conn)
}

func (v *server) hangUp() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	for c := range v.conns {
		c.Close()
	}
}

// meet serves a connection. Connections are numbered in order of arrival: after a pause of this process there may be
// many of one launcher at once, which has given up all but the last.
func (v *server) meet(ctx context.Context, conn net.Conn, number uint64) {
	if !ours(conn) {
		return
	}
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	in := bufio.NewReaderSize(conn, largest)
	want, err := in.ReadByte()
	if err != nil {
		return
	}
	mark, term, token := make([]byte, markSize), make([]byte, termSize), make([]byte, TokenSize)
	read := func(parts ...[]byte) bool {
		for _, part := range parts {
			if _, err := io.ReadFull(in, part); err != nil {
				return false
			}
		}
		return true
	}
	switch want {
	case carry:
		if read(mark, token) && v.begin(number, string(mark), token) {
			v.carry(conn, in, number, string(mark))
		}
	case adopt:
		if read(mark, term, token) && v.adopt(number, string(mark), binary.LittleEndian.Uint64(term), token) {
			v.carry(conn, in, number, string(mark))
		}
	case orphan:
		if read(mark) {
			v.orphan(string(mark))
		}
	case finish:
		if read(term) {
			v.finish(binary.LittleEndian.Uint64(term))
		}
	case watch:
		conn.SetDeadline(time.Time{})
		v.forget(conn)
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		io.Copy(io.Discard, in)
	}
}

func (v *server) carry(conn net.Conn, in io.Reader, number uint64, mark string) {
	wanted := func() bool { return v.last.Load() == number }
	listens := &Listener{Reader: in}
	stop := v.listen(listens.Waits, mark)
	v.relay.current().carryIf(wanted, conn, listens) // its error does not matter: see end
	stop()
	v.end(mark)
}

// listen watches for a launcher that has fallen silent: its machine may have lost power, and TCP takes a quarter of an
// hour to notice. The connection is kept, because it may recover. stop ends the watch.
func (v *server) listen(waits func() time.Time, mark string) (stop func()) {
	if v.timeouts.Silent == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(timing.LookInterval)
		defer tick.Stop()
		var quiet silence
		for {
			select {
			case <-ended:
				return
			case now := <-tick.C:
				limit := v.timeouts.Silent()
				v.hears(mark, quiet.look(now, waits()) < limit || limit == 0)
			}
		}
	})
	return func() { close(ended); wg.Wait() }
}

// hears records whether the launcher of a connection is heard.
func (v *server) hears(mark string, here bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.mark != mark || v.silent == !here:
	case here:
		v.resumed()
	default:
		v.silent = true
		v.ended()
	}
}

// expire ends a stream that no launcher resumed in time.
func (v *server) expire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.waits {
		return
	}
	switch now := time.Now(); {
	case now.Sub(v.due) > timing.Late():
		v.run(timing.ReunionGrace)
		return
	case v.timeouts.Extend != nil && !v.since.IsZero() && v.timeouts.Extend(now.Sub(v.since)):
		v.run(v.interval)
		return
	}
	if v.silent {
		v.relay.current().Fail(ErrSilent)
	} else {
		v.relay.current().Fail(ErrNotResumed)
	}
}

// adopt lets a launcher take over, and reports whether it may. The previous launcher's token is worthless from then on.
func (v *server) adopt(number uint64, mark string, term uint64, token []byte) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if term <= v.term || v.over || v.relay.current().Over() {
		return false
	}
	v.term, v.token = term, token
	v.relay.supersede()
	v.carried(number, mark)
	return true
}

// finish ends the stream for its launcher or a later one.
func (v *server) finish(term uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if term >= v.term {
		v.relay.current().Fail(ErrOrder)
	}
}

// begin reports whether a connection may carry the stream.
func (v *server) begin(number uint64, mark string, token []byte) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.token == nil {
		v.token = token
	}
	if subtle.ConstantTimeCompare(v.token, token) == 0 || number < v.last.Load() {
		return false
	}
	v.carried(number, mark)
	return true
}

// carried records which connection carries the stream. mu is held.
func (v *server) carried(number uint64, mark string) {
	v.last.Store(number)
	v.mark, v.orphaned = mark, false
	v.resumed()
}

// resumed records that the launcher is heard. mu is held.
func (v *server) resumed() {
	v.timer.Stop()
	v.waits, v.silent = false, false
	if v.timeouts.Connected != nil {
		v.timeouts.Connected(true)
	}
}

// end waits for the next connection if the latest one has ended.
func (v *server) end(mark string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mark == mark {
		v.ended()
	}
}

// ended starts waiting for a launcher that is heard on no connection. mu is held.
func (v *server) ended() {
	if v.timeouts.Connected != nil {
		v.timeouts.Connected(false)
	}
	if v.orphaned || v.silent {
		v.wait(v.timeouts.Orphan)
	} else {
		v.wait(v.timeouts.Broken)
	}
}

func (v *server) wait(d time.Duration) {
	if !v.waits {
		v.since = time.Now()
	}
	v.waits, v.interval = true, d
	v.run(d)
}

// run starts the timer.
func (v *server) run(after time.Duration) {
	v.due = time.Now().Add(after)
	v.timer.Reset(after)
}

func (v *server) orphan(mark string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mark != mark && v.token != nil {
		return // resumed meanwhile
	}
	v.orphaned = true // perhaps before the first connection
	if !v.relay.current().Connected() {
		v.wait(v.timeouts.Orphan)
	}
}

// The side of a resident daemon.

// Session is a stream that is served on this host. The name of its socket holds all its fields, so that a new resident
// daemon finds the sessions of its predecessor.
type Session struct {
	Cluster string // whose daemons may use it; letters and digits
	ID      string // letters and digits
	Slots   int
}

const prefix = "@gorun-job."

func (s Session) name() string {
	return fmt.Sprintf("%s%s.%d.%s", prefix, s.Cluster, s.Slots, s.ID)
}

// ValidID reports whether s can be an ID.
func ValidID(id string) bool {
	return len(id) >= 8 && len(id) <= 40 && strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// Listen creates the session's socket, which becomes the standard input of its process.
func (s Session) Listen() (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.name(), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for resumed connections: %w", err)
	}
	defer l.Close() // the file is a duplicate descriptor
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("listen for resumed connections: %w", err)
	}
	return f, nil
}

// Sessions returns the sessions of a cluster on this host.
func Sessions(cluster string) []Session {
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	return parse(string(text), cluster)
}

func parse(text, cluster string) []Session {
	seen := map[Session]bool{}
	var out []Session
	for line := range strings.Lines(text) {
		_, name, ok := strings.Cut(line, prefix+cluster+".")
		slots, id, dot := strings.Cut(strings.TrimSpace(name), ".")
		n, err := strconv.Atoi(slots)
		s := Session{Cluster: cluster, ID: id, Slots: n}
		if !ok || !dot || err != nil || n < 1 || !ValidID(id) || seen[s] { // connections have the same name
			continue
		}
		seen[s] = true
		out = append(out, s)
	}
	return out
}

func (s Session) dial(want byte, rest []byte) (net.Conn, error) {
	conn, err := net.DialTimeout("unix", s.name(), handshakeTimeout)
	if err != nil {
		return nil, err
	}
	if !ours(conn) {
		conn.Close()
		return nil, errors.New("the socket belongs to another user")
	}
	if _, err := conn.Write(append([]byte{want}, rest...)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Line is a connection that carries a launcher's bytes: its token, then frames.
type Line struct {
	net.Conn
	session Session
	mark    []byte
}

// Dial connects to the session's process.
func (s Session) Dial() (*Line, error) { return s.open(carry, nil) }

// Adopt connects a launcher that takes over to the session's process. If its term is not greater than the present one,
// the process closes the connection.
func (s Session) Adopt(term uint64) (*Line, error) {
	return s.open(adopt, binary.LittleEndian.AppendUint64(nil, term))
}

func (s Session) open(want byte, rest []byte) (*Line, error) {
	mark := make([]byte, markSize)
	if _, err := rand.Read(mark); err != nil {
		return nil, fmt.Errorf("make mark: %w", err)
	}
	conn, err := s.dial(want, append(mark, rest...))
	if err != nil {
		return nil, fmt.Errorf("connect to daemon of job: %w", err)
	}
	return &Line{conn, s, mark[:markSize]}, nil
}

// Orphan reports to the process that the launcher closed the connection. It comes before Close.
func (l *Line) Orphan() {
	if conn, err := l.session.dial(orphan, l.mark); err == nil {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(handshakeTimeout))
		conn.Read(make([]byte, 1)) // until the process has read it
	}
}

// End ends the session, unless a launcher with a greater term holds it.
func (s Session) End(term uint64) {
	if conn, err := s.dial(finish, binary.LittleEndian.AppendUint64(nil, term)); err == nil {
		conn.Close()
	}
}

// Watch returns a connection that ends when the session's process does.
func (s Session) Watch() (net.Conn, error) {
	conn, err := s.dial(watch, nil)
	if err != nil {
		return nil, fmt.Errorf("watch daemon of job: %w", err)
	}
	return conn, nil
}

// Lives reports whether the stream can still be resumed.
func (s Session) Lives() bool {
	conn, err := s.Watch()
	if err == nil {
		conn.Close()
	}
	return err == nil
}
