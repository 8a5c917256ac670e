package step

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorun/collective/admit"
)

// startTimeout is how long a step process may take to start a child.
const startTimeout = 5 * time.Second

// ErrBroken means that the connection to a host ended before the exit status of its child was known.
var ErrBroken = errors.New("the connection to the host broke")

// Hub is the launcher's end: a listener for step processes.
type Hub struct {
	key      []byte
	tls      *tls.Config
	listener net.Listener
	door     admit.Door
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[*Conn]bool   // all that are authenticated
	hosts  map[string]*peer // by the name that the launcher uses
}

// peer is a host.
type peer struct {
	idle  []*Conn
	conns int       // how many there are, idle or not
	since time.Time // when the last one ended; zero if there was none
	news  chan struct{}
}

// Listen opens a hub.
func Listen() (*Hub, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	config, err := channel(key)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, fmt.Errorf("listen for hosts: %w", err)
	}
	h := &Hub{key: key, tls: config, listener: l, conns: map[*Conn]bool{}, hosts: map[string]*peer{}}
	h.door.Timeout = handshakeTimeout
	h.running.Go(h.accept)
	return h, nil
}

// Order returns the line that a step process gets on standard input. host is "" if the scheduler names it on the host.
func (h *Hub) Order(host string) []byte {
	port := strconv.Itoa(h.listener.Addr().(*net.TCPAddr).Port)
	o := Order{Key: h.key, Host: host}
	found, _ := net.InterfaceAddrs()
	for _, loopback := range []bool{false, true} { // that one last: only this machine has it in common with a host
		for _, a := range found {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.IsLoopback() == loopback && !ip.IP.IsLinkLocalUnicast() {
				o.Addrs = append(o.Addrs, net.JoinHostPort(ip.IP.String(), port))
			}
		}
	}
	if len(o.Addrs) == 0 {
		o.Addrs = []string{net.JoinHostPort("localhost", port)}
	}
	return o.line()
}

// Expect makes a host known, so that a connection from there is found by its name.
func (h *Hub) Expect(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peer(host)
}

// peer returns a host, which it adds. mu is held.
func (h *Hub) peer(host string) *peer {
	p := h.hosts[host]
	if p == nil {
		p = &peer{news: make(chan struct{})}
		h.hosts[host] = p
	}
	return p
}

// named returns the host that calls itself by a name: one that is called so, or the only one whose first label is the
// same. mu is held.
func (h *Hub) named(name string) (*peer, error) {
	if h.hosts[name] != nil || net.ParseIP(name) != nil {
		return h.peer(name), nil
	}
	short, _, _ := strings.Cut(name, ".")
	var fit []string
	for host := range h.hosts {
		if label, _, _ := strings.Cut(host, "."); label == short {
			fit = append(fit, host)
		}
	}
	switch len(fit) {
	case 0:
		return h.peer(name), nil
	case 1:
		return h.peer(fit[0]), nil
	}
	slices.Sort(fit)
	return nil, fmt.Errorf("%s fits %s: name hosts as they call themselves", name, strings.Join(fit, " and "))
}

// Absent reports whether a host has no connection, and for how long after it had one; 0 if it never had one.
func (h *Hub) Absent(host string) (absent bool, after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.peer(host)
	if p.conns == 0 && !p.since.IsZero() {
		after = time.Since(p.since)
	}
	return p.conns == 0, after
}

// Close ends all step processes that wait for a command line, and all connections.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for c := range h.conns {
		if !c.taken {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			writeLine(c, request{End: true})
		}
		c.Conn.Close()
	}
	h.mu.Unlock()
	h.listener.Close()
	h.door.Close()
	h.running.Wait()
}

func (h *Hub) accept() {
	for {
		raw, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, for example: it passes
			time.Sleep(100 * time.Millisecond)
			continue
		}
		raw.(*net.TCPConn).SetKeepAliveConfig(keepAlive)
		conn := h.door.Enter(raw)
		h.running.Go(func() { h.meet(conn) })
	}
}

// meet lets a host in, and serves its connection until that ends.
func (h *Hub) meet(raw *admit.Conn) {
	defer raw.Close()
	secure := tls.Server(raw, h.tls)
	if secure.Handshake() != nil {
		return
	}
	raw.Known()
	raw.SetDeadline(time.Now().Add(handshakeTimeout))
	in := bufio.NewReaderSize(secure, maxLine)
	var hello greeting
	if readLine(in, &hello) != nil {
		return
	}
	raw.SetDeadline(time.Time{})
	c := newConn(secure, in)
	if !h.enter(c, hello.Host) {
		return
	}
	defer h.leave(c)
	_, err := in.Peek(1)
	h.mu.Lock()
	taken := c.taken
	h.mu.Unlock()
	if err != nil || !taken {
		c.err = ErrBroken
		close(c.done)
		return
	}
	c.serve()
}

func (h *Hub) enter(c *Conn, host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		writeLine(c, request{End: true})
		return false
	}
	p, err := h.named(host)
	if err != nil {
		writeLine(c, request{Refused: err.Error()})
		return false
	}
	c.peer = p
	c.peer.conns++
	c.peer.idle = append(c.peer.idle, c)
	close(c.peer.news)
	c.peer.news = make(chan struct{})
	h.conns[c] = true
	return true
}

func (h *Hub) leave(c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
	if c.peer.conns--; c.peer.conns == 0 {
		c.peer.since = time.Now()
	}
	for i, other := range c.peer.idle {
		if other == c {
			c.peer.idle = append(c.peer.idle[:i:i], c.peer.idle[i+1:]...)
			break
		}
	}
}

// Run runs a command line of gorun on a host, as soon as that waits for one. The session ends with ctx at the latest.
func (h *Hub) Run(ctx context.Context, host string, args []string) (*Session, error) {
	for {
		c, err := h.take(ctx, host)
		if err != nil {
			return nil, err
		}
		if s, err := c.run(ctx, args); err == nil || ctx.Err() != nil {
			return s, err
		}
	}
}

// take returns the latest connection that waits for a command line: older ones may be broken.
func (h *Hub) take(ctx context.Context, host string) (*Conn, error) {
	for {
		h.mu.Lock()
		p := h.peer(host)
		if n := len(p.idle); n > 0 {
			c := p.idle[n-1]
			p.idle, c.taken = p.idle[:n-1], true
			h.mu.Unlock()
			return c, nil
		}
		news := p.news
		h.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Conn is a connection to a step process.
type Conn struct {
	net.Conn
	in    *bufio.Reader
	to    *framer
	peer  *peer
	taken bool // it has a command line, or is about to; the hub's mu guards it

	begun          chan struct{} // closed when the host has taken its command line
	stdout, stderr *io.PipeWriter
	out, complain  *io.PipeReader // what comes from them
	done           chan struct{}  // closed when nothing more comes
	code           int
	err            error // if the code is not known
}

// newConn makes all that a command needs: the host may send its output as soon as the connection is taken.
func newConn(secure net.Conn, in *bufio.Reader) *Conn {
	c := &Conn{Conn: secure, in: in, to: &framer{to: secure}, begun: make(chan struct{}), done: make(chan struct{})}
	c.out, c.stdout = io.Pipe()
	c.complain, c.stderr = io.Pipe()
	return c
}

// Session is a command that runs on a host. Both Stdout and Stderr have to be read.
type Session struct {
	Stdin          io.WriteCloser
	Stdout, Stderr io.Reader
	conn           *Conn
	stop           func() bool
}

// run starts a command.
func (c *Conn) run(ctx context.Context, args []string) (*Session, error) {
	s := &Session{conn: c, Stdin: stdin{stream{c.to, input}}, Stdout: c.out, Stderr: c.complain}
	s.stop = context.AfterFunc(ctx, func() { s.Close() })
	c.SetWriteDeadline(time.Now().Add(startTimeout))
	err := writeLine(c, request{Run: args})
	c.SetWriteDeadline(time.Time{})
	late := time.NewTimer(startTimeout)
	defer late.Stop()
	if err == nil {
		select {
		case <-c.begun:
			return s, nil
		case <-c.done:
			if err = c.err; err == nil {
				return s, nil // it has begun too
			}
		case <-late.C:
			err = ErrBroken
		}
	}
	s.stop()
	s.Close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, err
}

// serve passes on what comes from the child.
func (c *Conn) serve() {
	begin := sync.OnceFunc(func() { close(c.begun) })
	c.err = ErrBroken
	buf := make([]byte, maxFrame)
	for over := false; !over; {
		kind, data, err := readFrame(c.in, buf)
		switch {
		case err != nil:
			over = true
		case kind == started:
			begin()
		case kind == output:
			c.stdout.Write(data)
		case kind == complaint:
			c.stderr.Write(data)
		case kind == exited && len(data) == 4:
			c.code, c.err, over = int(binary.LittleEndian.Uint32(data)), nil, true
			begin()
		default:
			over = true
		}
	}
	close(c.done)
	c.stdout.Close()
	c.stderr.Close()
}

// RemoteAddr returns the address of the host.
func (s *Session) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

// Wait waits for the command and returns its exit status. An error means that it is not known.
func (s *Session) Wait() (int, error) {
	<-s.conn.done
	s.stop()
	return s.conn.code, s.conn.err
}

// Close ends the connection at once. The command sees the end of its input.
func (s *Session) Close() error {
	err := s.conn.Conn.Close()
	s.conn.out.Close()
	s.conn.complain.Close()
	return err
}

// stdin is the standard input of a command.
type stdin struct{ stream }

func (s stdin) Close() error { return s.send(closing, nil) }
