package ssh_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"gorun/contrib/must"
	"gorun/launcher/ssh"
)

// sameKey is true for exactly the key of signer.
func sameKey(signer gossh.Signer) func(string, gossh.PublicKey) bool {
	return func(_ string, key gossh.PublicKey) bool {
		return string(key.Marshal()) == string(signer.PublicKey().Marshal())
	}
}

func TestConnect(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	var user atomic.Value
	srv.allowed = func(u string, key gossh.PublicKey) bool { user.Store(u); return sameKey(h.key)(u, key) }
	h.config(t, fmt.Sprintf("Host box\n HostName 127.0.0.1\n Port %s\n User alice\n", srv.port()))
	conn := connect(t, h.client(t), "box")
	if out, code := output(t, conn, "echo hello; exit 3"); out != "hello\n" || code != 3 {
		t.Errorf("got %q, exit code %d", out, code)
	}
	if user.Load() != "alice" {
		t.Errorf("logged in as %v", user.Load())
	}
	if got := conn.RemoteAddr(); got == nil || got.String() != srv.addr {
		t.Errorf("remote address %v, want %v", got, srv.addr)
	}
	if got := conn.LocalAddr(); got == nil {
		t.Error("no local address")
	}
}

func TestLostConnectionIsNotAnExitCode(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	conn := connect(t, h.client(t), srv.addr)
	s, err := conn.Start(testContext(t), "kill -9 $$")
	must.Do(t, err)
	if code, err := s.Wait(); err == nil || code != -1 {
		t.Errorf("code %d, error %v", code, err)
	}
}

func TestConnectErrors(t *testing.T) {
	h := newHome(t)
	closed := must.Listen(t)
	closed.Close()
	web := must.Listen(t)
	defer web.Close()
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := web.Accept()
			if err != nil {
				return
			}
			// Longer than what the library reads in search of a version.
			fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\n%s", strings.Repeat("x", 2000))
			c.(*net.TCPConn).CloseWrite()
			served.Go(func() { buf := make([]byte, 1<<10); c.Read(buf); c.Read(buf); c.Close() })
		}
	})
	defer served.Wait()
	defer web.Close()
	c := h.client(t)
	refused(t, c, closed.Addr().String(), ssh.StepConnect, "connection refused", "is sshd running")
	refused(t, c, "no-such-host.invalid", ssh.StepResolve, "unknown host no-such-host.invalid", "check the spelling, DNS, /etc/hosts or HostName in ssh_config")
	refused(t, c, web.Addr().String(), ssh.StepHandshake, "not an ssh server", "HTTP/1.1 400", "check the port (-p)")
	refused(t, c, "two words", ssh.StepConfig, "bad host name")
	refused(t, c, "-oProxyCommand=x", ssh.StepConfig, "bad host name")
}

func TestHangInHandshake(t *testing.T) {
	h := newHome(t)
	hang := startServer(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hang.greet = func(int, net.Conn) bool { <-release; return false }
	h.ConnectTimeout = 500 * time.Millisecond
	e := refused(t, h.client(t), hang.addr, ssh.StepHandshake, "no answer within 500ms", "overloaded")
	if !errors.Is(e, context.DeadlineExceeded) || errors.Is(e, ssh.ErrPaused) {
		t.Error("not a deadline error of the user's")
	}
	expect(t, "connections", &hang.accepted, 1)
}

// TestHangAtLogin: hosts that hang before they let us in keep no one else out, neither with the built-in client, whose
// time limit they would take, nor with a program in its place, which has none.
func TestHangAtLogin(t *testing.T) {
	const hung = 2 * ssh.PerServer
	reach := func(t *testing.T, h *home, bad []string, good string, arrived func() int) {
		t.Helper()
		c := h.client(t)
		ssh.Impatient(c)
		stop := errors.New("given up")
		ctx, cancel := context.WithCancelCause(testContext(t))
		try := func(ctx context.Context, host string) error {
			conn, err := c.Connect(ctx, host)
			if err != nil {
				return err
			}
			defer conn.Close()
			s, err := conn.Start(ctx, "echo in")
			if err == nil {
				_, err = s.Wait()
			}
			return err
		}
		var tries sync.WaitGroup
		for _, host := range bad {
			tries.Go(func() {
				if err := try(ctx, host); !errors.Is(err, stop) {
					t.Errorf("%s: %v, want that it hangs", host, err)
				}
			})
		}
		must.Soon(t, "all have arrived", func() bool { return arrived() == len(bad) })
		soon, done := context.WithTimeout(ctx, 10*time.Second)
		defer done()
		must.Report(t, try(soon, good))
		cancel(stop)
		tries.Wait()
	}
	t.Run("built-in", func(t *testing.T) {
		h, release := newHome(t), make(chan struct{})
		h.ConnectTimeout = time.Hour
		var servers []*server
		var addrs []string
		for range hung {
			srv := startServer(t)
			srv.greet = func(int, net.Conn) bool { <-release; return false }
			servers, addrs = append(servers, srv), append(addrs, srv.addr)
		}
		good := startServer(t)
		t.Cleanup(func() { close(release) })
		reach(t, h, addrs, good.addr, func() (n int) {
			for _, srv := range servers {
				n += int(srv.accepted.Load())
			}
			return n
		})
	})
	t.Run("a program", func(t *testing.T) {
		h := newHome(t)
		dir := t.TempDir()
		h.Command = []string{"/bin/sh", "-c", `case $1 in good) exec sh -c "$2";; esac; : >"$0/$1"; exec sleep 60`, dir}
		var names []string
		for i := range hung {
			names = append(names, fmt.Sprint("hung", i))
		}
		reach(t, h, names, "good", func() int {
			entries, _ := os.ReadDir(dir)
			return len(entries)
		})
	})
}

// TestHangAfterLogin: hosts that let us in and answer no more, as with a hanging PAM session, keep no one else out.
func TestHangAfterLogin(t *testing.T) {
	h := newHome(t)
	c := h.client(t)
	stop := errors.New("given up")
	ctx, cancel := context.WithCancelCause(testContext(t))
	var started sync.WaitGroup
	for range ssh.PerServer {
		srv := startServer(t)
		srv.mute = true
		conn := connect(t, c, srv.addr)
		started.Go(func() {
			_, err := conn.Start(ctx, "true")
			wantError(t, err, srv.addr, ssh.StepOpenChannel, stop.Error())
		})
	}
	good := startServer(t)
	settle()
	soon, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	conn, err := c.Connect(soon, good.addr)
	if err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	cancel(stop)
	started.Wait()
}

func TestDroppedConnectionsAreRetried(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	srv.greet = func(n int, c net.Conn) bool {
		switch n {
		case 1:
			c.(*net.TCPConn).SetLinger(0) // reset
			return false
		case 2:
			fmt.Fprint(c, "Exceeded MaxStartups\r\n")
			return false
		}
		return true
	}
	connect(t, h.client(t), srv.addr)
	expect(t, "connections", &srv.accepted, 3)
}

func TestServerThatAlwaysDrops(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	srv.greet = func(_ int, c net.Conn) bool { fmt.Fprint(c, "Not allowed at this time\r\n"); return false }
	c := h.client(t)
	ssh.GiveUpSoon(c)
	refused(t, c, srv.addr, ssh.StepHandshake, ": the server closed the connection, saying ", "Not allowed at this time", "MaxStartups")
	expect(t, "connections", &srv.accepted, 3)
}

func TestRefusedKeyIsNotRetried(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	srv.allowed = func(string, gossh.PublicKey) bool { return false }
	writeLockedKey(t, h.path(".ssh/id_rsa"))
	refused(t, h.client(t), "bob@"+srv.addr, ssh.StepAuthenticate,
		"bob@127.0.0.1: no key was accepted", "offered ~/.ssh/id_ed25519", "skipped ~/.ssh/id_rsa: it has a passphrase", "no ssh agent", "start an ssh-agent and ssh-add the key")
	expect(t, "connections", &srv.accepted, 1)
}

func TestDropDuringAuthenticationIsNotRetried(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	var c atomic.Value
	srv.greet = func(_ int, conn net.Conn) bool { c.Store(conn); return true }
	srv.allowed = func(string, gossh.PublicKey) bool { c.Load().(net.Conn).Close(); return false }
	refused(t, h.client(t), srv.addr, ssh.StepAuthenticate)
	expect(t, "connections", &srv.accepted, 1)
}

func TestServerWithoutPublicKeys(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	srv.conf.PublicKeyCallback = nil
	srv.conf.PasswordCallback = func(gossh.ConnMetadata, []byte) (*gossh.Permissions, error) { return nil, errors.New("no") }
	refused(t, h.client(t), srv.addr, ssh.StepAuthenticate, "takes no public keys", "--ssh-command ssh uses the system's ssh, which knows Kerberos")
}

func TestIdentityFiles(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	named := writeKey(t, h.path("keys/job"))
	srv.allowed = sameKey(named)
	h.IdentityFiles = []string{"~/keys/job"}
	connect(t, h.client(t), srv.addr)
	h.IdentityFiles = []string{"~/keys/none"}
	refused(t, h.client(t), srv.addr, ssh.StepAuthenticate, "no such identity file: ~/keys/none", "check the path given with -i")

	// One line reports a file that is named and holds no key, although another key fits.
	if said := h.noted(); strings.Contains(said, "-i ") {
		t.Errorf("notes of good keys: %s", said)
	}
	writeFile(t, h.path("keys/hostname"), []byte("box\n"), 0o600)
	h.IdentityFiles = []string{"~/keys/hostname", "~/keys/job"}
	c := h.client(t)
	connect(t, c, srv.addr)
	connect(t, c, srv.addr)
	if said := h.noted(); strings.Count(said, srv.addr+": -i ~/keys/hostname is not used: ") != 1 {
		t.Errorf("noted %q", said)
	}

	h.IdentityFiles = nil
	h.config(t, "Host *\n IdentityFile %d/keys/job\n IdentityFile ~/keys/gone\n")
	connect(t, h.client(t), srv.addr)

	srv.allowed = func(string, gossh.PublicKey) bool { return false }
	must.Do(t, os.Chmod(h.path("keys/job"), 0o644))
	refused(t, h.client(t), srv.addr, ssh.StepAuthenticate, "there is no key to offer",
		"~/keys/job: its permissions 0644 let others read it", "~/keys/gone: no such file")
}

// TestLoginWhileAsked: a login that begins while the user types a passphrase for another one has as much time as any.
func TestLoginWhileAsked(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	srv.allowed = sameKey(writeLockedKey(t, h.path("keys/locked")))
	h.IdentityFiles = []string{"~/keys/locked"}
	h.ConnectTimeout = time.Second
	asked := make(chan struct{})
	h.Prompt = func(context.Context, string) (string, error) {
		close(asked)
		time.Sleep(1500 * time.Millisecond)
		return lockedPassphrase, nil
	}
	c := h.client(t)
	var first sync.WaitGroup
	first.Go(func() {
		if conn, err := c.Connect(testContext(t), srv.addr); err != nil {
			t.Error(err)
		} else {
			conn.Close()
		}
	})
	<-asked
	connect(t, c, srv.addr)
	first.Wait()
}

func TestEncryptedKey(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	locked := writeLockedKey(t, h.path("keys/locked"))
	srv.allowed = sameKey(locked)
	h.IdentityFiles = []string{"~/keys/locked"}
	h.ConnectTimeout = time.Second
	var asked atomic.Int64
	answers := []string{"wrong", lockedPassphrase}
	h.Prompt = func(_ context.Context, question string) (string, error) {
		if !strings.Contains(question, "~/keys/locked") {
			t.Errorf("question %q", question)
		}
		n := asked.Add(1)
		if n == 1 {
			time.Sleep(1200 * time.Millisecond) // a slow typist: longer than the connection may take
		}
		return answers[n-1], nil
	}
	c := h.client(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			conn, err := c.Connect(testContext(t), srv.addr)
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		})
	}
	wg.Wait()
	expect(t, "questions", &asked, 2)

	h.Prompt = func(context.Context, string) (string, error) { return "wrong", nil }
	refused(t, h.client(t), srv.addr, ssh.StepAuthenticate, "wrong passphrase for ~/keys/locked, 3 times")
	h.Prompt = func(context.Context, string) (string, error) {
		t.Error("asked for a key that the server does not want")
		return "", nil
	}
	srv.allowed = func(string, gossh.PublicKey) bool { return false }
	refused(t, h.client(t), srv.addr, ssh.StepAuthenticate, "no key was accepted", "offered ~/keys/locked")
}

// A launch that is cancelled while the user is being asked does not go on asking for the next host.
func TestCancelWhilePrompting(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	srv.allowed = sameKey(writeLockedKey(t, h.path("keys/locked")))
	h.IdentityFiles = []string{"~/keys/locked"}
	ctx, cancel := context.WithCancel(context.Background())
	var asked atomic.Int64
	h.Prompt = func(ctx context.Context, _ string) (string, error) {
		asked.Add(1)
		cancel()
		<-ctx.Done()
		return "", ctx.Err()
	}
	c := h.client(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := c.Connect(ctx, srv.addr); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	c.Close()
	expect(t, "questions", &asked, 1)
}

// startAgent serves keys on a socket as ssh-agent does.
func startAgent(t *testing.T, keys ...agent.AddedKey) (socket string) {
	t.Helper()
	ring := agent.NewKeyring()
	for _, k := range keys {
		must.Do(t, ring.Add(k))
	}
	dir, err := os.MkdirTemp("", "agent")
	must.Do(t, err)
	l, err := net.Listen("unix", dir+"/s")
	must.Do(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { agent.ServeAgent(ring, c); c.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait(); os.RemoveAll(dir) })
	return dir + "/s"
}

func TestAgent(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	held, other := newRawKey(t), newRawKey(t)
	h.Agent = startAgent(t, agent.AddedKey{PrivateKey: other, Comment: "other@laptop"}, agent.AddedKey{PrivateKey: held, Comment: "me@laptop"})
	signer, _ := gossh.NewSignerFromKey(held)
	srv.allowed = sameKey(signer)
	connect(t, h.client(t), srv.addr)

	// IdentitiesOnly: only the one whose public key is named.
	writeFile(t, h.path("keys/held.pub"), gossh.MarshalAuthorizedKey(signer.PublicKey()), 0o644)
	h.config(t, "IdentityFile ~/keys/held\nIdentitiesOnly yes\n")
	srv.offered.Clear()
	connect(t, h.client(t), srv.addr)
	offered := 0
	srv.offered.Range(func(any, any) bool { offered++; return true })
	if offered != 1 {
		t.Errorf("offered %d keys, want the named one only", offered)
	}

	h.config(t, "")
	srv.allowed = func(string, gossh.PublicKey) bool { return false }
	refused(t, h.client(t), srv.addr, ssh.StepAuthenticate, "agent:me@laptop", "agent:other@laptop", "~/.ssh/id_ed25519")
	h.Agent = h.path("no-agent")
	refused(t, h.client(t), srv.addr, ssh.StepAuthenticate, "ssh agent: dial unix")
}

func TestNoMoreKeysThanTheServerAllows(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	var keys []agent.AddedKey
	for i := range 9 {
		keys = append(keys, agent.AddedKey{PrivateKey: newRawKey(t), Comment: fmt.Sprint("key", i)})
	}
	// The key that is in a file and in the agent counts once, and first.
	h.Agent = startAgent(t, keys...)
	h.IdentityFiles = []string{"~/.ssh/id_ed25519"}
	srv.allowed = func(string, gossh.PublicKey) bool { return false }
	e := refused(t, h.client(t), srv.addr, ssh.StepAuthenticate, "agent:key8: the server allows no more than 6 keys")
	offered := 0
	srv.offered.Range(func(_, n any) bool { offered += int(n.(*atomic.Int64).Load()); return true })
	if offered != 6 {
		t.Errorf("%d offers: %v", offered, e)
	}
	srv.allowed = sameKey(h.key)
	connect(t, h.client(t), srv.addr)
}

func TestCertificate(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	ca := newSigner(t)
	cert := &gossh.Certificate{Key: h.key.PublicKey(), CertType: gossh.UserCert, ValidPrincipals: []string{h.LocalUser}, ValidBefore: gossh.CertTimeInfinity}
	must.Do(t, cert.SignCert(rand.Reader, ca))
	writeFile(t, h.path(".ssh/id_ed25519-cert.pub"), gossh.MarshalAuthorizedKey(cert), 0o644)
	checker := gossh.CertChecker{IsUserAuthority: func(k gossh.PublicKey) bool { return sameKey(ca)("", k) }}
	srv.conf.PublicKeyCallback = checker.Authenticate
	connect(t, h.client(t), srv.addr)
}

func TestProxyJump(t *testing.T) {
	first, second, target, h := startServer(t), startServer(t), startServer(t), newHome(t)
	h.config(t, fmt.Sprintf(`
Host first
  HostName 127.0.0.1
  Port %s
Host second
  HostName 127.0.0.1
  Port %s
  ProxyJump nobody@no-such-host.invalid
Host node*
  HostName 127.0.0.1
  Port %s
  ProxyJump first,second
Host direct
  HostName 127.0.0.1
  Port %s
  ProxyJump none
Host *
  ProxyJump first
`, first.port(), second.port(), target.port(), target.port()))
	// `first` finds its own ProxyJump, which is itself.
	refused(t, h.client(t), "node1", ssh.StepConfig, "too many bastions")

	h.config(t, strings.Replace(readText(t, h.path(".ssh/config")), "Host *\n  ProxyJump first\n", "", 1))
	c := h.client(t)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			conn, err := c.Connect(testContext(t), fmt.Sprintf("node%d", i))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if conn.RemoteAddr() != nil {
				t.Errorf("address %v through a bastion", conn.RemoteAddr())
			}
			if out, _ := output(t, conn, "echo hi"); out != "hi\n" {
				t.Errorf("got %q", out)
			}
		})
	}
	wg.Wait()
	if a, b := first.logins.Load(), second.logins.Load(); a != 1 || b != 1 {
		t.Errorf("%d and %d logins to the bastions, want one each", a, b)
	}
	connect(t, c, "direct")
	must.Soon(t, "13 logins", func() bool { return target.logins.Load() == 13 })
}

func TestBastionFailures(t *testing.T) {
	bastion, h := startServer(t), newHome(t)
	bad := startServer(t)
	bad.allowed = func(string, gossh.PublicKey) bool { return false }
	h.config(t, fmt.Sprintf("Host bad\n HostName 127.0.0.1\n Port %s\nHost good\n HostName 127.0.0.1\n Port %s\n"+
		"Host a\n HostName 127.0.0.1\n Port 1\n ProxyJump good\nHost b\n ProxyJump bad\n", bad.port(), bastion.port()))
	c := h.client(t)
	if e := refused(t, c, "a", ssh.StepConnect, "127.0.0.1:1: the bastion says: ", "Connection refused"); e.Hop != "" {
		t.Errorf("blames bastion %s", e.Hop)
	}
	if e := refused(t, c, "b", ssh.StepAuthenticate, "b: authenticate (bastion bad)"); e.Hop != "bad" {
		t.Errorf("hop %q", e.Hop)
	}
}

// A bastion connection that broke is made anew for the next host.
func TestBastionReconnects(t *testing.T) {
	bastion, target, h := startServer(t), startServer(t), newHome(t)
	h.config(t, fmt.Sprintf("Host b\n HostName 127.0.0.1\n Port %s\nHost node\n HostName 127.0.0.1\n Port %s\n ProxyJump b\n", bastion.port(), target.port()))
	c := h.client(t)
	conn := connect(t, c, "node")
	s, err := conn.Start(testContext(t), "cat")
	must.Do(t, err)
	bastion.conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
	if _, err := s.Wait(); err == nil {
		t.Error("no error though the bastion went away")
	}
	must.Soon(t, "the next bastion is reached", func() bool {
		conn, err := c.Connect(testContext(t), "node")
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// A ProxyCommand that fails is reported by the last line it wrote, and at once; one on which the server hung up is
// tried again.
func TestProxyCommandFails(t *testing.T) {
	h := newHome(t)
	tries := h.path("tries")
	command := func(text string) {
		t.Helper()
		writeFile(t, h.path("proxy.sh"), []byte("echo tried >>"+tries+"\n"+text+"\n"), 0o600)
		must.Do(t, os.RemoveAll(tries))
	}
	script := "sh " + h.path("proxy.sh")
	h.config(t, "Host box\n HostName 127.0.0.1\n Port 1\n ProxyCommand "+script+"\n"+
		"Host inner\n HostName 127.0.0.1\n Port 1\n ProxyJump box\nHost none\n HostName 127.0.0.1\n Port 1\n ProxyCommand no-such-tunnel %h\n")
	for _, tt := range []struct {
		host, command, want, hop string
	}{
		{"box", "echo tunnel: dialling >&2; echo tunnel: bad password >&2; exit 3",
			"box: connect: 127.0.0.1:1: the ProxyCommand ended with exit status 3: tunnel: bad password", ""},
		{"box", "head -c 1 >/dev/null; exit 1", "box: connect: 127.0.0.1:1: the ProxyCommand ended with exit status 1", ""},
		{"box", "kill -TERM $$", "box: connect: 127.0.0.1:1: the ProxyCommand ended with signal: terminated", ""},
		{"inner", "echo no way >&2; exit 1", "inner: connect (bastion box): 127.0.0.1:1: the ProxyCommand ended with exit status 1: no way", "box"},
	} {
		command(tt.command)
		if e := refused(t, h.client(t), tt.host, ssh.StepConnect, "by itself? "+script); e.Error() != tt.want || e.Hop != tt.hop {
			t.Errorf("%s: got %q (bastion %q), want %q", tt.command, e.Error(), e.Hop, tt.want)
		}
		if n := strings.Count(readText(t, tries), "tried"); n != 1 {
			t.Errorf("%s: tried %d times, want once", tt.command, n)
		}
	}
	refused(t, h.client(t), "none", ssh.StepConnect, "exit status 127", "no-such-tunnel", "by itself? no-such-tunnel 127.0.0.1")

	for _, dropped := range []string{
		"exit 0", // nc, when the server has closed
		"echo kex_exchange_identification: Connection closed by remote host >&2; exit 255", // ssh -W, by its bastion
		"echo Ncat: Connection reset by peer. >&2; exit 1",
	} {
		command(dropped)
		c := h.client(t)
		ssh.GiveUpSoon(c)
		refused(t, c, "box", ssh.StepHandshake, "the server closed the connection: ", "EOF")
		if n := strings.Count(readText(t, tries), "tried"); n != 3 {
			t.Errorf("%s: tried %d times, want 3", dropped, n)
		}
	}
}

func TestCancelClosesTheSession(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	conn := connect(t, h.client(t), srv.addr)
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	s, err := conn.Start(ctx, "cat")
	must.Do(t, err)
	cancel(stop)
	if _, err := s.Wait(); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if _, err := conn.Start(context.Background(), "true"); err == nil {
		t.Error("the connection is still usable")
	}
}

func readText(t testing.TB, path string) string {
	t.Helper()
	b := must.Read(t, path)
	return string(b)
}

// TestBroken: a connection that breaks after the login differs from a host that refuses a command.
func TestBroken(t *testing.T) {
	for _, breaks := range []bool{true, false} {
		srv, h := startServer(t), newHome(t)
		conn := connect(t, h.client(t), srv.addr)
		if breaks {
			srv.conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		}
		b := program(1 << 10)
		b.Platform = "Plan9 vax"
		if _, err := conn.Bootstrap(testContext(t), b, nil); errors.Is(err, ssh.ErrBroken) != breaks || err == nil {
			t.Errorf("%v is taken for a connection that broke: %v", err, !breaks)
		}
	}
}
