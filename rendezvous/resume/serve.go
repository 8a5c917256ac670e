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
)

// What a connection to Serve wants; its first byte.
const (
	carry  byte = 'R' // to carry the stream; a mark and a token follow, and the stream's frames
	adopt  byte = 'A' // to carry the stream of another launcher from here on; as carry, but its term comes before the token
	orphan byte = 'O' // to say that the launcher hung up on the connection with the mark that follows
	finish byte = 'E' // to end the stream, by a launcher whose term follows
	watch  byte = 'W' // to notice the end of the process
)

const (
	markSize = 8
	termSize = 8
	// TokenSize is how many random bytes a launcher is known by.
	TokenSize = 32
)

// Patience is how long Serve waits for a connection.
type Patience struct {
	First  time.Duration // that the stream begins with
	Broken time.Duration // after one that broke: the standing daemon is being replaced
	Orphan time.Duration // after one that the launcher hung up on: most likely it was killed
	// Silent is how long a launcher may say nothing on a connection that stands, 0 for as long as it likes, until that counts as broken.
	// Nil for never.
	Silent func() time.Duration
	// Longer is asked when it has run out: whether there is a reason to wait as long again, after so much. Nil for no.
	Longer func(waited time.Duration) bool
	// Connected is told when a connection begins or ends to carry the stream. Nil for nobody. Neither may wait.
	Connected func(bool)
}

// DefaultPatience is that of a job's daemon.
var DefaultPatience = Patience{First: 20 * time.Second, Broken: time.Minute, Orphan: 2 * time.Second}

const (
	// punctual is by how much a timer is late only if this host stood still: who looks for it could not reach it meanwhile.
	punctual = time.Second
	// recovery is how long these have to do so once it goes on.
	recovery = 10 * time.Second
	// listenEvery is how often one looks whether a launcher is silent.
	listenEvery = 250 * time.Millisecond
)

// Forever is a term greater than those of all launchers.
const Forever = ^uint64(0)

// Serve lets those who connect carry the stream, until the stream is over; then it shuts the listener. Whoever comes
// first with a token is the one whom the stream belongs to, until another one adopts it with a greater term. It
// returns at the end of ctx, which is when the job has ended: those who watch hear of it then.
func Serve(ctx context.Context, l net.Listener, r *Relay, p Patience) {
	v := &server{relay: r, patience: p, conns: map[net.Conn]bool{}, waits: true, term: 1}
	v.due = time.Now().Add(p.First)
	v.timer = time.AfterFunc(p.First, v.expire)
	defer v.timer.Stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for s := r.current(); ; {
			s.mu.Lock()
			for s.err == nil && !s.parted {
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
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil {
			r.current().Fail(fmt.Errorf("accept: %w", err))
			break
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
	patience Patience
	timer    *time.Timer
	last     atomic.Uint64 // the number of the connection that is to carry the stream

	mu       sync.Mutex
	conns    map[net.Conn]bool
	over     bool
	waits    bool          // the timer runs
	due      time.Time     // when it is to end
	again    time.Duration // how long it runs each time
	since    time.Time     // it was first set
	term     uint64        // of the launcher
	token    []byte        // of the launcher, nil until it came
	mark     string        // of the connection that carries the stream
	orphaned bool          // its launcher hung up
	silent   bool          // it stands, but its launcher says nothing
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

// meet does what a connection wants. They are numbered as they came: if this process stood still there may be many of one launcher at
// once, which has given up all but the last.
func (v *server) meet(ctx context.Context, conn net.Conn, number uint64) {
	if !ours(conn) {
		return
	}
	conn.SetDeadline(time.Now().Add(introduction))
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
	v.relay.current().carryIf(wanted, conn, listens) // how it ended does not matter: see end
	stop()
	v.end(mark)
}

// listen notices that the launcher of a connection says nothing any more: its machine may have lost its power, of which TCP knows a
// quarter of an hour later. The connection is kept, for it may be well again. stop ends that.
func (v *server) listen(waits func() int64, mark string) (stop func()) {
	if v.patience.Silent == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(listenEvery)
		defer tick.Stop()
		var quiet silence
		for {
			select {
			case <-ended:
				return
			case now := <-tick.C:
				var since time.Time
				if ns := waits(); ns != 0 {
					since = time.Unix(0, ns)
				}
				patience := v.patience.Silent()
				v.hears(mark, quiet.look(now, since) < patience || patience == 0)
			}
		}
	})
	return func() { close(ended); wg.Wait() }
}

// hears notes whether the launcher of a connection is heard.
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

// expire ends a stream that nobody resumed.
func (v *server) expire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.waits {
		return
	}
	switch now := time.Now(); {
	case now.Sub(v.due) > punctual:
		v.run(recovery)
		return
	case v.patience.Longer != nil && !v.since.IsZero() && v.patience.Longer(now.Sub(v.since)):
		v.run(v.again)
		return
	}
	if v.silent {
		v.relay.current().Fail(ErrSilent)
	} else {
		v.relay.current().Fail(ErrNotResumed)
	}
}

// adopt is true if a launcher has taken over. From then on nobody speaks for the job with the former one's token.
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

// finish ends the stream on the order of its launcher, or of one that comes after it.
func (v *server) finish(term uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if term >= v.term {
		v.relay.current().Fail(ErrOrder)
	}
}

// begin is true if a connection may carry the stream.
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

// carried notes by which connection the stream is carried now. mu is held.
func (v *server) carried(number uint64, mark string) {
	v.last.Store(number)
	v.mark, v.orphaned = mark, false
	v.resumed()
}

// resumed says that the launcher is heard. mu is held.
func (v *server) resumed() {
	v.timer.Stop()
	v.waits, v.silent = false, false
	if v.patience.Connected != nil {
		v.patience.Connected(true)
	}
}

// end waits for the next connection, if it was the last one that ended.
func (v *server) end(mark string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mark == mark {
		v.ended()
	}
}

// ended waits for the launcher, which is not heard by any connection. mu is held.
func (v *server) ended() {
	if v.patience.Connected != nil {
		v.patience.Connected(false)
	}
	if v.orphaned {
		v.wait(v.patience.Orphan)
	} else {
		v.wait(v.patience.Broken)
	}
}

func (v *server) wait(patience time.Duration) {
	if !v.waits {
		v.since = time.Now()
	}
	v.waits, v.again = true, patience
	v.run(patience)
}

// run has expire called.
func (v *server) run(after time.Duration) {
	v.due = time.Now().Add(after)
	v.timer.Reset(after)
}

func (v *server) orphan(mark string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mark != mark && v.token != nil {
		return // it was resumed meanwhile
	}
	v.orphaned = true // perhaps before its first word
	if !v.relay.current().Connected() {
		v.wait(v.patience.Orphan)
	}
}

// The side of a standing daemon.

// Session is a stream that is served on this host. Its socket's name says all of it, so that a standing daemon that
// has just begun finds those of the one before it.
type Session struct {
	Cluster string // whose daemons may use it: letters and digits
	ID      string // letters and digits
	Slots   int
}

const prefix = "@gorun-job."

func (s Session) name() string {
	return fmt.Sprintf("%s%s.%d.%s", prefix, s.Cluster, s.Slots, s.ID)
}

// ValidID is true for what an ID can be.
func ValidID(id string) bool {
	return len(id) >= 8 && len(id) <= 40 && strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// Listen makes the socket at which the session's process will be found: its standard input.
func (s Session) Listen() (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.name(), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for resumed connections: %w", err)
	}
	defer l.Close() // the file is another descriptor of it
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("listen for resumed connections: %w", err)
	}
	return f, nil
}

// Sessions finds those of a cluster that this host has.
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
		if !ok || !dot || err != nil || n < 1 || !ValidID(id) || seen[s] { // its connections have the same name
			continue
		}
		seen[s] = true
		out = append(out, s)
	}
	return out
}

func (s Session) dial(want byte, rest []byte) (net.Conn, error) {
	conn, err := net.DialTimeout("unix", s.name(), introduction)
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

// Line is a connection for a launcher's bytes: its token and then frames.
type Line struct {
	net.Conn
	session Session
	mark    []byte
}

// Dial connects to the session's process.
func (s Session) Dial() (*Line, error) { return s.open(carry, nil) }

// Adopt connects a launcher to the session's process that takes over, with its term. It is refused by the end of the
// connection if that is not greater than the present one's.
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

// Orphan says that the launcher hung up. It comes before Close.
func (l *Line) Orphan() {
	if conn, err := l.session.dial(orphan, l.mark); err == nil {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(introduction))
		conn.Read(make([]byte, 1)) // until it was taken
	}
}

// End ends the session, if that is for a launcher of this term to say.
func (s Session) End(term uint64) {
	if conn, err := s.dial(finish, binary.LittleEndian.AppendUint64(nil, term)); err == nil {
		conn.Close()
	}
}

// Watch returns a connection that ends with the session's process.
func (s Session) Watch() (net.Conn, error) {
	conn, err := s.dial(watch, nil)
	if err != nil {
		return nil, fmt.Errorf("watch daemon of job: %w", err)
	}
	return conn, nil
}

// Lives is true while the stream can be carried on.
func (s Session) Lives() bool {
	conn, err := s.Watch()
	if err == nil {
		conn.Close()
	}
	return err == nil
}
