package ssh_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"gorun/contrib/must"
	"gorun/launcher/ssh"
)

// server is an ssh server in this process, for the faults that a real sshd does not produce on demand. It runs commands
// with /bin/sh and forwards connections.
type server struct {
	addr    string
	key     gossh.Signer
	conf    *gossh.ServerConfig
	allowed func(user string, key gossh.PublicKey) bool

	greet func(n int, c net.Conn) bool // called for the n-th connection; false = it has been dealt with

	logins   atomic.Int64
	accepted atomic.Int64
	offered  sync.Map // fingerprint → number of times
	env      []string
	unheard  bool   // requests get no answer
	stall    int    // when > 0, commands get no more than that many bytes of input
	mute     bool   // no channel is answered
	login    string // what the login shell runs before each command

	listener net.Listener
	conns    sync.Map
	wg       sync.WaitGroup
}

func newSigner(t testing.TB) gossh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	signer, err := gossh.NewSignerFromKey(private)
	must.Do(t, err)
	return signer
}

// settled orders what a test writes into the fields of a server before the connections that it makes next; the network
// between the two is nothing that the race detector knows.
var settled sync.Mutex

func settle() {
	settled.Lock()
	defer settled.Unlock()
}

// startServer serves until the test ends. Change fields of the result before the first connection.
func startServer(t testing.TB) *server {
	t.Helper()
	s := &server{key: newSigner(t), allowed: func(string, gossh.PublicKey) bool { return true }}
	s.conf = &gossh.ServerConfig{
		MaxAuthTries: 7, // counts the first attempt, with no key, too
		PublicKeyCallback: func(meta gossh.ConnMetadata, key gossh.PublicKey) (*gossh.Permissions, error) {
			n, _ := s.offered.LoadOrStore(gossh.FingerprintSHA256(key), new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			if s.allowed(meta.User(), key) {
				return nil, nil
			}
			return nil, errors.New("no")
		},
	}
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.addr = s.listener.Addr().String()
	s.wg.Go(s.accept)
	t.Cleanup(s.close)
	return s
}

func (s *server) close() {
	s.listener.Close()
	s.conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
	s.wg.Wait()
}

func (s *server) port() string {
	_, port, _ := net.SplitHostPort(s.addr)
	return port
}

func (s *server) accept() {
	var once sync.Once
	for n := 1; ; n++ {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		settle()
		once.Do(func() { s.conf.AddHostKey(s.key) })
		s.accepted.Add(1)
		s.conns.Store(c, nil)
		s.wg.Go(func() {
			defer c.Close()
			if s.greet == nil || s.greet(n, c) {
				s.serve(c)
			}
		})
	}
}

func (s *server) serve(c net.Conn) {
	conn, chans, reqs, err := gossh.NewServerConn(c, s.conf)
	if err != nil {
		return
	}
	s.logins.Add(1)
	s.wg.Go(func() {
		if s.unheard {
			for range reqs {
			}
		}
		gossh.DiscardRequests(reqs)
	})
	for ch := range chans {
		if s.mute {
			continue
		}
		switch ch.ChannelType() {
		case "session":
			s.wg.Go(func() { s.session(ch) })
		case "direct-tcpip":
			s.wg.Go(func() { s.forward(ch) })
		default:
			ch.Reject(gossh.UnknownChannelType, "")
		}
	}
	conn.Close()
}

func (s *server) session(nc gossh.NewChannel) {
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	for r := range reqs {
		if r.Type != "exec" {
			r.Reply(false, nil)
			continue
		}
		r.Reply(true, nil)
		var exe struct{ Command string }
		gossh.Unmarshal(r.Payload, &exe)
		s.wg.Go(func() { gossh.DiscardRequests(reqs) })
		cmd := exec.Command("/bin/sh", "-c", s.login+exe.Command)
		cmd.Env = append(os.Environ(), s.env...)
		cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
		in, _ := cmd.StdinPipe()
		s.wg.Go(func() {
			if s.stall > 0 {
				io.CopyN(in, ch, int64(s.stall))
				io.Copy(io.Discard, ch)
			} else {
				io.Copy(in, ch)
			}
			in.Close()
		})
		err := cmd.Run()
		code := cmd.ProcessState.ExitCode()
		if err != nil && code < 0 {
			return // killed: the client sees no status
		}
		ch.SendRequest("exit-status", false, gossh.Marshal(struct{ Status uint32 }{uint32(code)}))
		return
	}
}

func (s *server) forward(nc gossh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	gossh.Unmarshal(nc.ExtraData(), &to)
	c, err := net.Dial("tcp", net.JoinHostPort(to.Host, fmt.Sprint(to.Port)))
	if err != nil {
		nc.Reject(gossh.ConnectionFailed, "Connection refused")
		return
	}
	s.conns.Store(c, nil)
	ch, reqs, err := nc.Accept()
	if err != nil {
		c.Close()
		return
	}
	s.wg.Go(func() { gossh.DiscardRequests(reqs) })
	s.wg.Go(func() { io.Copy(c, ch); c.(*net.TCPConn).CloseWrite() })
	io.Copy(ch, c)
	ch.Close()
	c.Close()
}

// writeKey stores a new private key and its public half, and returns the signer.
func writeKey(t testing.TB, path string) gossh.Signer {
	t.Helper()
	private := newRawKey(t)
	block, err := gossh.MarshalPrivateKey(private, "test")
	must.Do(t, err)
	signer, err := gossh.NewSignerFromKey(private)
	must.Do(t, err)
	writeFile(t, path, pem.EncodeToMemory(block), 0o600)
	writeFile(t, path+".pub", gossh.MarshalAuthorizedKey(signer.PublicKey()), 0o644)
	return signer
}

// A key that was made for these tests with `ssh-keygen -a 1`, for every round of hashing takes its time.
const (
	lockedPassphrase = "open sesame"
	lockedKey        = `-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABCt98OwnX
6UnfjWN+8R6h/OAAAAAQAAAAEAAAAzAAAAC3NzaC1lZDI1NTE5AAAAIC8XznD6shwLHmf1
k0b3CA/jPxAHoy/yGrIYz6Rm3NHAAAAAkLTNaOtvS25/vtfoPHEH2Bp5kp5ygPVdBfJvxm
GjDSI1IM6xmaontboYBfrW+Y4MqfX52iX5BDLjatQfDapM6TiiBSfugc6XFEMdKoKbkW5q
pHcYaEmP1TP+QjmNO5JaYRcbS21XH5ZNXyGvl4giyWxx2q4H/3l930GKEcpQpMPbbh3Xsb
4pO4GUSlgYJMUqRQ==
-----END OPENSSH PRIVATE KEY-----
`
)

// writeLockedKey stores a key with a passphrase.
func writeLockedKey(t testing.TB, path string) gossh.Signer {
	t.Helper()
	signer, err := gossh.ParsePrivateKeyWithPassphrase([]byte(lockedKey), []byte(lockedPassphrase))
	must.Do(t, err)
	writeFile(t, path, []byte(lockedKey), 0o600)
	return signer
}

func writeFile(t testing.TB, path string, text []byte, mode os.FileMode) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, text, mode))
}

// home is a user with one key and an ssh_config.
type home struct {
	dir   string
	key   gossh.Signer
	notes *bytes.Buffer
	mu    sync.Mutex
	ssh.Config
}

func newHome(t testing.TB) *home {
	t.Helper()
	if _, ok := lookPath("ssh"); !ok {
		t.Skip("needs ssh: install openssh-client") // it reads the configuration
	}
	h := &home{dir: hostHome(t), notes: new(bytes.Buffer)}
	me, err := user.Current()
	must.Do(t, err)
	h.key = writeKey(t, filepath.Join(h.dir, ".ssh/id_ed25519"))
	h.Config = ssh.Config{
		Home: h.dir, LocalUser: me.Username, LookupEnv: os.LookupEnv, ConnectTimeout: 20 * time.Second,
		Note: func(host, text string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			fmt.Fprintf(h.notes, "%s: %s\n", host, text)
		},
	}
	h.config(t, "")
	return h
}

func (h *home) noted() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.notes.String()
}

func (h *home) path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

func (h *home) config(t testing.TB, text string) {
	writeFile(t, h.path(".ssh/config"), fmt.Appendf(nil, "%s\nHost *\n UserKnownHostsFile %s\n GlobalKnownHostsFile %s\n",
		text, h.path(".ssh/known_hosts"), h.path("etc/ssh_known_hosts")), 0o600)
}

// client makes a Client that is closed when the test ends.
func (h *home) client(t testing.TB) *ssh.Client {
	t.Helper()
	settle()
	cfg := h.Config
	if cfg.ConfigFile == "" && len(cfg.Command) == 0 {
		cfg.ConfigFile = "~/.ssh/config" // of this home
	}
	c, err := ssh.New(cfg)
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// connect logs in and closes the connection when the test ends.
func connect(t testing.TB, c *ssh.Client, host string) *ssh.Conn {
	t.Helper()
	settle()
	conn, err := c.Connect(testContext(t), host)
	must.Do(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// refused logs in, expects to fail at step, and expects the message and hint to contain every one of texts.
func refused(t testing.TB, c *ssh.Client, host string, step ssh.Step, texts ...string) *ssh.Error {
	t.Helper()
	settle()
	conn, err := c.Connect(testContext(t), host)
	if err == nil {
		conn.Close()
		t.Fatalf("connect %s: no error", host)
	}
	return wantError(t, err, host, step, texts...)
}

func wantError(t testing.TB, err error, host string, step ssh.Step, texts ...string) *ssh.Error {
	t.Helper()
	var e *ssh.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is a %T, not an *ssh.Error: %v", err, err)
	}
	if e.Host != host || e.Step != step {
		t.Errorf("host %q step %q, want %q %q: %v", e.Host, e.Step, host, step, err)
	}
	all := e.Error() + "\n" + e.Hint
	for _, want := range texts {
		if !strings.Contains(all, want) {
			t.Errorf("message lacks %q:\n%s", want, all)
		}
	}
	if strings.Contains(e.Error(), "\n") {
		t.Errorf("message is not one line: %q", e.Error())
	}
	return e
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// output runs a command and returns what it prints and its exit code.
func output(t testing.TB, conn *ssh.Conn, command string) (string, int) {
	t.Helper()
	s, err := conn.Start(testContext(t), command)
	must.Do(t, err)
	s.Stdin.Close()
	out, err := io.ReadAll(s.Stdout)
	must.Do(t, err)
	code, err := s.Wait()
	must.Do(t, err)
	return string(out), code
}

func newRawKey(t testing.TB) *ed25519.PrivateKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	return &private
}
