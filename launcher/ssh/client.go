package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// maxHops bounds a chain of bastions, so that two that name each other end in an error.
const maxHops = 8

// Client dials the hosts of one launch. It is safe for use by many goroutines at once.
type Client struct {
	cfg    Config
	config *resolver
	gate   *gate
	places *places
	retry  retry
	near   func(*Conn) bool
	plain  atomic.Int32 // uploads that were not compressed
	told   sync.Map     // the hosts that the system's ssh logs in to

	hostTimeout, waitEvery, silence, quietLogin time.Duration // the constants, except in tests

	// running counts the handshakes; they end at the latest when Close has closed their connections.
	running sync.WaitGroup

	promptMu sync.Mutex // one question at a time

	mu       sync.Mutex
	closed   bool
	keys     map[string]*keyFile
	agents   map[string]*agentKeys
	known    map[string]*hostKeys
	bastions map[string]*bastion
	packed   map[string]*packed
}

// bastion is a connection that hosts share. The first host that needs it opens it, the others wait for ready.
type bastion struct {
	ready  chan struct{}
	client *gossh.Client
	err    error
}

// New returns a Client. It fails only if Config.ConfigFile names a file that cannot be used.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if f := cfg.ConfigFile; f != "" && f != NoConfig {
		if _, err := readText(cfg.expandHome(f)); err != nil {
			return nil, fmt.Errorf("load ssh config: read %s: %w", f, err)
		}
	}
	return &Client{
		cfg: cfg, config: newResolver(cfg), gate: newGate(hungAfter), places: &places{known: map[string]*place{}}, retry: defaultRetry, near: (*Conn).near,
		hostTimeout: hostTimeout, waitEvery: waitEvery, silence: silenceLimit, quietLogin: quietLogin,
		keys: map[string]*keyFile{}, agents: map[string]*agentKeys{}, known: map[string]*hostKeys{},
		bastions: map[string]*bastion{}, packed: map[string]*packed{},
	}, nil
}

// Close closes the bastions, and with them every Conn through one, and the agent, and waits for abandoned handshakes.
// Other Conns are closed by their owners.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	for _, b := range c.bastions {
		select {
		case <-b.ready:
			if b.client != nil {
				b.client.Close()
			}
		default: // its opener sees closed and closes it
		}
	}
	for _, a := range c.agents {
		if a.conn != nil {
			a.conn.Close()
		}
	}
	c.mu.Unlock()
	c.running.Wait()
}

// Connect logs in to a host, which may be written user@host. Cancelling ctx abandons the attempt at once; it has no
// effect on the Conn afterwards. The error is an *Error.
func (c *Client) Connect(ctx context.Context, host string) (*Conn, error) {
	s, err := c.settingsFor(ctx, host, false)
	var client *gossh.Client
	var raw *greeting
	var entered func()
	var route []string
	if err == nil && s.command == nil {
		route, err = c.route(ctx, s, 0)
	}
	if err == nil && s.system != nil {
		err = c.bySystem(ctx, s, route)
		if _, told := c.told.LoadOrStore(host, true); c.cfg.Verbose && !told && err == nil {
			c.cfg.Note(host, s.system.Error()+", which logs in")
		}
	}
	if err == nil && s.command != nil {
		return &Conn{host: host, client: c, transport: c.external(s)}, nil
	}
	if err == nil {
		client, raw, entered, err = c.login(ctx, s, route)
	}
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Step: StepConnect, Err: err}
		}
		named := *e // the original may be shared with other hosts behind the same bastion
		named.Host = host
		return nil, &named
	}
	conn := &Conn{host: host, client: c, transport: builtin{client, entered}, local: addrOf(raw.LocalAddr()), remote: addrOf(raw.RemoteAddr()), heard: raw.heard, key: raw.key}
	if len(route) == 0 && s.proxyCommand == "" {
		conn.raw = raw
	}
	return conn, nil
}

// route returns the bastions on the way to a machine: the ones its ssh_config names, preceded by the ones that the
// first of them needs itself. It sets s.system if gorun's own client cannot log in to one of them.
func (c *Client) route(ctx context.Context, s *settings, depth int) ([]string, error) {
	if len(s.jumps) == 0 {
		return nil, nil
	}
	var first *settings
	for _, hop := range s.jumps {
		one, err := c.settingsFor(ctx, hop, true)
		if err != nil {
			named := *err.(*Error)
			named.Hop = hop
			return nil, &named
		}
		first, s.system = cmp.Or(first, one), cmp.Or(s.system, one.system)
	}
	if depth == maxHops {
		return nil, &Error{Hop: s.jumps[0], Step: StepConfig, Err: errors.New("too many bastions in a row: does ProxyJump go in circles?")}
	}
	before, err := c.route(ctx, first, depth+1)
	s.system = cmp.Or(s.system, first.system)
	return append(before, s.jumps...), err
}

type dialFunc func(context.Context) (net.Conn, error)

// login makes one authenticated connection, directly, through the bastions of route or through a proxy command.
func (c *Client) login(ctx context.Context, s *settings, route []string) (client *gossh.Client, raw *greeting, entered func(), err error) {
	dial := func(ctx context.Context) (net.Conn, error) { return dialTCP(ctx, s) }
	switch {
	case len(route) > 0:
		via, err := c.bastionFor(ctx, route)
		if err != nil {
			return nil, nil, nil, err
		}
		dial = func(ctx context.Context) (net.Conn, error) { return c.dialThrough(ctx, via, s) }
	case s.proxyCommand != "":
		dial = func(context.Context) (net.Conn, error) { return dialCommand(s.proxyCommand) }
	}
	// Behind another bastion, the same address may be another machine.
	return c.shake(ctx, s, dial, strings.Join(append(route, s.addr()), " "))
}

// bastionFor returns the connection to the last machine of route, reached through the others.
func (c *Client) bastionFor(ctx context.Context, route []string) (*gossh.Client, error) {
	key := strings.Join(route, " ")
	for {
		c.mu.Lock()
		b := c.bastions[key]
		if b == nil {
			b = &bastion{ready: make(chan struct{})}
			c.bastions[key] = b
			c.mu.Unlock()
			c.openBastion(ctx, b, key, route)
			return b.client, b.err
		}
		c.mu.Unlock()
		select {
		case <-b.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		// If its opener was cancelled and this caller was not, this caller opens it.
		if b.err == nil || ctx.Err() != nil || !errors.Is(b.err, context.Canceled) {
			return b.client, b.err
		}
	}
}

// openBastion opens the connection that others wait for. One that failed or broke is forgotten, so that the next host
// tries again; the waiting hosts share the failure.
func (c *Client) openBastion(ctx context.Context, b *bastion, key string, route []string) {
	forget := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.bastions[key] == b {
			delete(c.bastions, key)
		}
	}
	defer close(b.ready)
	before, last := route[:len(route)-1:len(route)-1], route[len(route)-1]
	s, err := c.settingsFor(ctx, last, true)
	if err == nil {
		var entered func()
		if b.client, _, entered, err = c.login(OnAnswer(ctx, func(bool) {}), s, before); err == nil {
			entered()
		}
	}
	if err != nil {
		forget()
		e := &Error{Step: StepConnect, Err: err}
		if errors.As(err, &e) {
			e = &Error{Hop: e.Hop, Step: e.Step, Err: e.Err, Hint: e.Hint}
		}
		if e.Hop == "" {
			e.Hop = last
		}
		b.client, b.err = nil, e
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		b.client.Close()
		b.err = &Error{Hop: last, Step: StepConnect, Err: net.ErrClosed}
		b.client = nil
		return
	}
	client := b.client
	c.running.Go(func() {
		client.Wait()
		forget()
	})
}

// key returns the key file at path, read at first use.
func (c *Client) key(path string) (*keyFile, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, seen := c.keys[path]
	if !seen {
		k, _ = readKey(path)
		c.keys[path] = k
	}
	if k == nil {
		return nil, fs.ErrNotExist
	}
	return k, nil
}

// agentAt returns the agent's keys, empty when there is no agent.
func (c *Client) agentAt(socket string) *agentKeys {
	if socket == "" {
		return &agentKeys{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.agents[socket]
	if a == nil {
		a = openAgent(socket)
		c.agents[socket] = a
	}
	return a
}

// hostKeysFor returns the known_hosts that apply to a machine.
func (c *Client) hostKeysFor(s *settings) *hostKeys {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.Join(s.knownHosts, "\n")
	k := c.known[key]
	if k == nil {
		k = newHostKeys(c.cfg, s.knownHosts)
		c.known[key] = k
	}
	return k
}
