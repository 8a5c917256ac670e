package ssh

import (
	"cmp"
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// retry determines how often a server that drops connections is tried: the n-th pause is a random part of first·2ⁿ, at
// most max. The default gives up after some 12 s.
type retry struct {
	attempts   int
	first, max time.Duration
}

var defaultRetry = retry{attempts: 16, first: 100 * time.Millisecond, max: 2 * time.Second}

// countedFor is how long sshd may take, on a busy machine, to notice that a connection has authenticated.
const countedFor = 500 * time.Millisecond

// attempts logs in by try, whose machine is known to the gate by a key, and retries only if the server hung up before it showed
// a key: that is how an sshd with too many connections behaves, and a retry cures nothing else. A refused key must not be
// offered again: new sshds lock out an address that fails to authenticate. It returns the last try's pass.
func (c *Client) attempts(ctx context.Context, key, server string, try func() (dropped bool, err error)) (*pass, error) {
	wait := c.retry.first
	for n := 1; ; n++ {
		p, err := c.gate.enter(ctx, key)
		if err != nil {
			return nil, &Error{Step: StepConnect, Err: fmt.Errorf("wait for other connections to %s: %w", server, err)}
		}
		dropped, err := try()
		if !dropped {
			return p, err
		}
		p.dropped()
		if n == c.retry.attempts {
			return nil, err
		}
		c.cfg.Log.Debug("ssh connection dropped, trying again", "host", server, "attempt", n, "err", err)
		select {
		case <-time.After(rand.N(wait)):
		case <-ctx.Done():
			return nil, cmp.Or(err, context.Cause(ctx)) // a dropped program has no error of its own
		}
		wait = min(2*wait, c.retry.max)
	}
}

// shake logs in with gorun's own client. The caller calls entered once the host has answered something else: until then sshd may
// count the connection among the unauthenticated ones. A host that does not answer counts no longer than countedFor.
func (c *Client) shake(ctx context.Context, s *settings, dial dialFunc, key string) (client *gossh.Client, raw *greeting, entered func(), err error) {
	p, err := c.attempts(ctx, key, s.addr(), func() (dropped bool, err error) {
		a := &attempt{client: c, s: s, known: c.hostKeysFor(s)}
		client, raw, err = a.run(ctx, dial)
		return a.dropped, err
	})
	if p == nil {
		return nil, nil, nil, err
	}
	leave := sync.OnceFunc(p.done)
	if err != nil {
		leave()
		return nil, nil, nil, err
	}
	late := time.AfterFunc(countedFor, leave)
	return client, raw, func() { late.Stop(); leave() }, nil
}

// addrOf drops the made-up addresses of connections through a bastion.
func addrOf(a net.Addr) net.Addr {
	if tcp, ok := a.(*net.TCPAddr); !ok || tcp.IP.IsUnspecified() {
		return nil
	}
	return a
}

// attempt is one dial, handshake and authentication.
type attempt struct {
	client *Client
	s      *settings
	known  *hostKeys
	offer  *offer
	timer  *time.Timer // the time limit; stopped while the user types a passphrase

	dropped bool // set by run: the server hung up before authentication

	// What the handshake's callbacks saw; they run in goroutines of the ssh library.
	mu         sync.Mutex
	hostKeyErr error
	keySeen    bool   // the server has shown its key
	hostKey    string // that key
	authBegun  bool   // it has asked for ours
}

var errTimeout = errors.New("no answer")

func (a *attempt) run(ctx context.Context, dial dialFunc) (*gossh.Client, *greeting, error) {
	algorithms := a.known.algorithms(a.s)

	// The time limit is a context, because it must stop while the user types, and because a channel through a bastion
	// has no deadlines. When it or the caller's context ends, the connection is closed.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.timer = time.AfterFunc(a.s.timeout, func() { cancel(errTimeout) })
	defer a.timer.Stop()

	var err error
	if a.offer, err = a.client.keysFor(a.s, a.user(ctx)); err != nil {
		return nil, nil, err
	}
	raw, err := dial(ctx)
	switch cause := context.Cause(ctx); {
	case err != nil && errors.Is(cause, errTimeout):
		return nil, nil, dialError(a.s.addr(), &silence{addr: a.s.addr(), after: a.s.timeout})
	case err != nil && cause != nil:
		return nil, nil, &Error{Step: StepConnect, Err: fmt.Errorf("%s: %w", a.s.addr(), cause)}
	case err != nil:
		a.dropped = isDropped(err)
		return nil, nil, dialError(a.s.addr(), err)
	}
	Answered(ctx)
	nc := &greeting{Conn: raw}
	stop := context.AfterFunc(ctx, func() { nc.Close() })

	// The handshake has its own goroutine, because Close does not return on a channel through a stalled bastion.
	var client *gossh.Client
	done := make(chan error, 1)
	a.client.running.Go(func() {
		conn, chans, reqs, err := gossh.NewClientConn(nc, a.s.knownAs(), a.config(algorithms))
		if err == nil {
			client = gossh.NewClient(conn, chans, reqs)
		}
		done <- err
	})
	select {
	case err = <-done:
	case <-ctx.Done():
	}
	a.timer.Stop()
	// Cancelled, perhaps at the moment of success. The context may have ended before it could close the connection, and
	// then it never will.
	if !stop() || ctx.Err() != nil {
		a.client.running.Go(func() { nc.Close() })
		return nil, nil, a.cut(context.Cause(ctx))
	}
	if err != nil {
		nc.Close()
		if failed := a.proxyFailed(raw, err); failed != nil {
			return nil, nil, failed
		}
		return nil, nil, a.explain(err, nc.said())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	nc.key = a.hostKey
	return client, nc, nil
}

func (a *attempt) config(algorithms []string) *gossh.ClientConfig {
	return &gossh.ClientConfig{
		Config:            a.s.transport,
		User:              a.s.user,
		ClientVersion:     "SSH-2.0-gorun",
		HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(_ string, remote net.Addr, key gossh.PublicKey) error {
			err := a.known.check(a.s, remote, key)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.keySeen, a.hostKey, a.hostKeyErr = true, string(key.Marshal()), err
			return err
		},
		// One method with all keys: the library uses only the first method of a kind.
		Auth: []gossh.AuthMethod{gossh.PublicKeysCallback(func() ([]gossh.Signer, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.authBegun = true
			return a.offer.signers, nil
		})},
		BannerCallback: func(text string) error {
			a.client.cfg.Log.Debug("ssh banner", "host", a.s.host, "text", oneLine(text))
			return nil
		},
	}
}

// user returns how to ask for passphrases; the time limit is suspended meanwhile.
func (a *attempt) user(ctx context.Context) user {
	u := user{pause: func() func() {
		a.timer.Stop()
		return func() { a.timer.Reset(a.s.timeout) }
	}}
	if prompt := a.client.cfg.Prompt; prompt != nil {
		u.ask = func(question string) (string, error) {
			a.client.promptMu.Lock()
			defer a.client.promptMu.Unlock()
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			return prompt(ctx, question)
		}
	}
	return u
}

// cut returns the error of an attempt that ran out of time or was cancelled.
func (a *attempt) cut(cause error) *Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := &Error{Step: StepHandshake, Err: fmt.Errorf("%s: %w", a.s.addr(), cause)}
	if a.keySeen {
		e.Step = StepAuthenticate
	}
	if errors.Is(cause, errTimeout) {
		e.Err = &silence{a.s.addr(), a.s.timeout, !a.s.limited}
		e.Hint = "the host accepts connections but its sshd does not answer: is it overloaded, or paused? (ConnectTimeout in ssh_config waits longer)"
	}
	return e
}

// proxyFailed returns the error of the ProxyCommand, if the command failed and not the server behind it. It is not
// retried.
func (a *attempt) proxyFailed(conn net.Conn, err error) *Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	command, ok := conn.(*commandConn)
	if !ok || a.keySeen || !isDropped(err) {
		return nil
	}
	return command.failure(a.s.addr())
}

// explain determines the step at which the attempt failed. said is the server's first line.
func (a *attempt) explain(err error, said string) *Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := &Error{Step: StepHandshake}
	if a.hostKeyErr != nil {
		if !errors.As(a.hostKeyErr, &e) {
			e = &Error{Step: StepHostKey, Err: a.hostKeyErr}
		}
		return e
	}
	if !a.authBegun && isDropped(err) {
		a.dropped = true
		if errors.Is(err, syscall.EPIPE) {
			err = io.EOF // which end of a pipe closes first is random
		}
		e.Err = fmt.Errorf("%s: the server closed the connection: %w", a.s.addr(), err)
		e.Hint = "sshd may be at its limit (MaxStartups, PerSourceMaxStartups), or refuse this address (its log says)"
		if said != "" && !strings.HasPrefix(said, "SSH-") {
			e.Err = fmt.Errorf("%s: the server closed the connection, saying %q", a.s.addr(), said)
		}
		return e
	}
	if !a.keySeen {
		e.Err = fmt.Errorf("%s: %s", a.s.addr(), cleanError(err))
		if fips140.Enforced() && strings.Contains(err.Error(), "no common algorithm") {
			e.Hint = "FIPS 140-only mode (GODEBUG=fips140=only) leaves ECDH on NIST curves, AES-CTR and HMAC-SHA2; sshd -T shows what the host has"
		}
		if said != "" && !strings.HasPrefix(said, "SSH-") {
			e.Err = fmt.Errorf("%s: not an ssh server: it says %q", a.s.addr(), said)
			e.Hint = "check the port (-p)"
		}
		return e
	}
	return a.explainAuth(err)
}

// explainAuth lists what was tried, as the user has to compare that with the host's authorized_keys.
func (a *attempt) explainAuth(err error) *Error {
	e := &Error{Step: StepAuthenticate}
	who := a.s.user + "@" + a.s.hostName
	o := a.offer
	text := strings.ToLower(err.Error())
	refused := strings.Contains(text, "unable to authenticate") || strings.Contains(text, "too many authentication failures")
	var detail []string
	if len(o.names) > 0 {
		detail = append(detail, "offered "+strings.Join(o.names, ", "))
	}
	if len(o.skipped) > 0 {
		detail = append(detail, "skipped "+strings.Join(o.skipped, ", "))
	}
	if o.agent != "" {
		detail = append(detail, o.agent)
	}
	switch {
	case !refused:
		e.Err = fmt.Errorf("%s: %s", who, cleanError(err))
		if errors.Is(err, syscall.ECONNRESET) { // a server that rejects us closes the connection in order
			e.Err = broken{e.Err}
		}
		return e
	case !a.authBegun:
		e.Err = fmt.Errorf("%s: the server takes no public keys", who)
		e.Hint = "--ssh-command ssh uses the system's ssh, which knows Kerberos, passwords and hardware keys"
		return e
	case len(o.signers) == 0:
		e.Err = fmt.Errorf("%s: there is no key to offer (%s)", who, strings.Join(detail, "; "))
	default:
		e.Err = fmt.Errorf("%s: no key was accepted (%s)", who, strings.Join(detail, "; "))
	}
	e.Hint = fmt.Sprintf("test with: ssh -p %d %s; allow a key with ssh-copy-id, name one with -i", a.s.port, who)
	for _, s := range o.skipped {
		if strings.Contains(s, "ssh-add") {
			e.Hint = "start an ssh-agent and ssh-add the key, or run gorun from a terminal so that it can ask for the passphrase"
		}
	}
	return e
}

func cleanError(err error) string {
	text := strings.TrimPrefix(err.Error(), "ssh: handshake failed: ")
	return oneLine(strings.TrimPrefix(text, "ssh: "))
}
