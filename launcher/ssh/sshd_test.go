package ssh_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"gorun/contrib/must"
	"gorun/launcher/ssh"
)

// sshd is a real OpenSSH server on a port of its own, with its own keys and a home for its users.
type sshd struct {
	port, home string

	mu   sync.Mutex
	said []string // its log, a line each
}

// count returns how many lines of its log have all of the texts.
func (d *sshd) count(texts ...string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, line := range d.said {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}

func startSSHD(t testing.TB, allowed gossh.PublicKey, extra string) *sshd {
	t.Helper()
	const program = "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs sshd: install openssh-server")
	}
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd insists on it
			t.Fatal(err)
		}
	}
	dir := hostHome(t)
	d := &sshd{home: filepath.Join(dir, "home")}
	writeKey(t, filepath.Join(dir, "host_key"))
	writeFile(t, filepath.Join(dir, "authorized_keys"), gossh.MarshalAuthorizedKey(allowed), 0o644)
	writeFile(t, filepath.Join(d.home, ".bashrc"), []byte("echo 'Welcome to .bashrc'\nprintf 'no newline'\n"), 0o644)
	must.Do(t, os.Chmod(dir, 0o755))
	// A port chosen by the kernel may be taken by someone else before sshd binds it.
	for range 5 {
		l := must.Listen(t)
		_, d.port, _ = net.SplitHostPort(l.Addr().String())
		l.Close()
		hostKey := "HostKey " + dir + "/host_key"
		if strings.Contains(extra, "HostKey ") {
			hostKey = ""
		}
		writeFile(t, filepath.Join(dir, "sshd_config"), fmt.Appendf(nil, `%s
ListenAddress 127.0.0.1:%s
%s
PidFile none
AuthorizedKeysFile %s/authorized_keys
StrictModes no
UsePAM no
UseDNS no
SetEnv HOME=%s XDG_CACHE_HOME=%s/.cache
`, strings.ReplaceAll(extra, "PORT", d.port), d.port, hostKey, dir, d.home, d.home), 0o600)
		if d.start(t, program, filepath.Join(dir, "sshd_config")) {
			return d
		}
	}
	t.Fatal("sshd does not start")
	return nil
}

func (d *sshd) start(t testing.TB, program, config string) bool {
	cmd := exec.Command(program, "-D", "-e", "-f", config)
	stderr, err := cmd.StderrPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	text := must.Read(t, config)
	addresses := bytes.Count(text, []byte("ListenAddress "))
	ready := make(chan bool, 1)
	tell := func(ok bool) {
		select {
		case ready <- ok:
		default: // once is enough
		}
	}
	var log sync.WaitGroup
	log.Go(func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			d.mu.Lock()
			d.said = append(d.said, lines.Text())
			d.mu.Unlock()
			if strings.Contains(lines.Text(), "listening on") {
				if addresses--; addresses == 0 {
					tell(true)
				}
			}
		}
		if t.Failed() {
			t.Logf("sshd:\n%s", strings.Join(d.said, "\n"))
		}
		tell(false)
	})
	if !<-ready {
		log.Wait()
		cmd.Wait()
		return false
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		log.Wait() // its children have the pipe too: they are all gone
		cmd.Wait()
	})
	return true
}

// sshdHome is a user who may log in to d, with d known as "box" and any number of names box0, box1, ….
func sshdHome(t testing.TB, extra string) (*home, *sshd) {
	t.Helper()
	h := newHome(t)
	d := startSSHD(t, h.key.PublicKey(), extra)
	h.config(t, fmt.Sprintf("Host box*\n HostName 127.0.0.1\n Port %s\n", d.port))
	return h, d
}

func TestSSHD(t *testing.T) {
	h, d := sshdHome(t, "")
	c := h.client(t)
	conn := connect(t, c, "box")
	if out, code := output(t, conn, "echo $HOME; exit 4"); !strings.HasSuffix(out, d.home+"\n") || code != 4 {
		t.Errorf("got %q and %d", out, code)
	}
	s, err := conn.Start(testContext(t), "kill -TERM $$")
	must.Do(t, err)
	if code, err := s.Wait(); code != 128+15 || err != nil {
		t.Errorf("command killed by TERM: %d %v", code, err)
	}

	b := program(2 << 20)
	out, _ := output(t, conn, "uname -sm")
	b.Platform = lastOf(out)
	converse(t, connect(t, c, "box"), b, "0022")
	wantFiles(t, filepath.Join(d.home, ".cache/gorun", b.SHA256), "gorun", "ok")
	converse(t, connect(t, c, "box"), b, "0022")
}

func lastOf(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "no newline")
}

func TestSSHDRefusals(t *testing.T) {
	h, _ := sshdHome(t, "MaxSessions 1\nMaxAuthTries 3")
	c := h.client(t)
	conn := connect(t, c, "box")
	s, err := conn.Start(testContext(t), "cat")
	must.Do(t, err)
	_, err = conn.Start(testContext(t), "cat")
	wantError(t, err, "box", ssh.StepOpenChannel, "MaxSessions")
	s.Stdin.Close()
	s.Wait()

	for i := range 5 {
		writeKey(t, h.path("keys", fmt.Sprint(i)))
		h.IdentityFiles = append(h.IdentityFiles, h.path("keys", fmt.Sprint(i)))
	}
	refused(t, h.client(t), "box", ssh.StepAuthenticate, "no key was accepted (offered ~/keys/0, ~/keys/1", "ssh-copy-id")
}

// An sshd that drops connections from the third on that has not authenticated drops some of ours, and no one notices.
func TestSSHDMaxStartups(t *testing.T) {
	h, d := sshdHome(t, "LogLevel VERBOSE\nMaxStartups 2:100:2")
	manyLogins(t, h.client(t), 16)
	d.wantFewAttempts(t, 16)
}

// By default sshd drops connections at random from the eleventh on: few of ours, although its addresses look like different
// machines, and no one notices.
func TestSSHDMaxStartupsManyAddresses(t *testing.T) {
	const addresses, hosts = 16, 64
	extra := "LogLevel VERBOSE\nMaxStartups 10:30:100\n"
	for i := 2; i <= addresses; i++ {
		extra += fmt.Sprintf("ListenAddress 127.0.0.%d:PORT\n", i)
	}
	h, d := sshdHome(t, extra)
	var config strings.Builder
	for i := range hosts {
		fmt.Fprintf(&config, "Host box%d\n HostName 127.0.0.%d\n", i, i%addresses+1)
	}
	h.config(t, fmt.Sprintf("%sHost *\n Port %s\n", config.String(), d.port))
	manyLogins(t, h.client(t), hosts)
	d.wantFewAttempts(t, hosts)
}

// wantFewAttempts checks that logins that were dropped were not tried again and again: what sshd dropped is in its log,
// beside what it took.
func (d *sshd) wantFewAttempts(t *testing.T, hosts int) {
	t.Helper()
	took, dropped := d.count("Connection from "), d.count("drop connection")
	t.Logf("sshd took %d connections and dropped %d", took, dropped)
	if took < hosts || took+dropped > 5*hosts {
		t.Errorf("for %d logins sshd took %d connections and dropped %d", hosts, took, dropped)
	}
}

func manyLogins(t *testing.T, c *ssh.Client, n int) {
	t.Helper()
	var wg sync.WaitGroup
	var failed atomic.Int64
	begin := time.Now()
	for i := range n {
		wg.Go(func() {
			conn, err := c.Connect(testContext(t), fmt.Sprintf("box%d", i))
			if err != nil {
				failed.Add(1)
				t.Error(err)
				return
			}
			if out, code := output(t, conn, "echo $((6*7))"); !strings.HasSuffix(out, "42\n") || code != 0 {
				t.Errorf("got %q and %d", out, code)
			}
			conn.Close()
		})
	}
	wg.Wait()
	t.Logf("%d logins in %v, %d failed", n, time.Since(begin).Round(time.Millisecond), failed.Load())
}

// relay counts what goes to a server.
type relay struct {
	net.Listener
	sent atomic.Int64
}

func startRelay(t testing.TB, to string) *relay {
	t.Helper()
	l := must.Listen(t)
	r := &relay{Listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			wg.Go(func() {
				for buf := make([]byte, 64<<10); ; {
					n, err := c.Read(buf)
					r.sent.Add(int64(n))
					if _, werr := up.Write(buf[:n]); err != nil || werr != nil {
						up.Close()
						return
					}
				}
			})
			wg.Go(func() { io.Copy(c, up); c.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return r
}

func TestBytesOfABootstrap(t *testing.T) {
	h, d := sshdHome(t, "")
	r := startRelay(t, "127.0.0.1:"+d.port)
	_, port, _ := net.SplitHostPort(r.Addr().String())
	h.Port = atoi(t, port)
	b := program(4 << 20)
	c := h.client(t)
	bootstrap := func() int64 {
		conn, err := c.Connect(testContext(t), "box")
		must.Do(t, err)
		defer conn.Close()
		before := r.sent.Load()
		s, err := conn.Bootstrap(testContext(t), b, nil)
		must.Do(t, err)
		defer s.Wait()
		defer s.Stdin.Close()
		return r.sent.Load() - before
	}
	cold, warm := bootstrap(), bootstrap()
	t.Logf("a binary of %d bytes: %d bytes cold, %d warm", b.Size, cold, warm)
	// As it is to a host that is near; a machine that is busy may look as if it were far.
	if cold < b.Size/2 || cold > b.Size+64<<10 {
		t.Errorf("cold start sends %d bytes of %d", cold, b.Size)
	}
	// To hosts that are not near, 64 different letters in 8 bits compress to 3/4.
	ssh.FarAway(c)
	b = program(5 << 20)
	if cold := bootstrap(); cold < b.Size/2 || cold > b.Size*9/10 {
		t.Errorf("cold start sends %d bytes of %d to a host that is far away", cold, b.Size)
	}
	if warm > 8<<10 {
		t.Errorf("warm start sends %d bytes", warm)
	}
}

func atoi(t testing.TB, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// With the system's ssh in place of the built-in client.
func TestSystemSSH(t *testing.T) {
	h, d := sshdHome(t, "")
	program0, ok := lookPath("ssh")
	if !ok {
		t.Skip("needs ssh: install openssh-client")
	}
	h.Command = []string{program0, "-oStrictHostKeyChecking=accept-new", "-oBatchMode=yes", "-oUserKnownHostsFile=" + h.path("known")}
	h.IdentityFiles = []string{"~/.ssh/id_ed25519"}
	h.ConfigFile = "~/.ssh/config"
	b := program(1 << 20)
	c := h.client(t)
	converse(t, connect(t, c, "box"), b, "0022")
	wantFiles(t, filepath.Join(d.home, ".cache/gorun", b.SHA256), "gorun", "ok")
	if out, code := output(t, connect(t, c, "box"), "echo out; exit 9"); !strings.HasSuffix(out, "out\n") || code != 9 {
		t.Errorf("got %q and %d", out, code)
	}
	h.IdentityFiles = []string{"/nonexistent"}
	h.Port = 1
	_, err := connect(t, h.client(t), "box").Bootstrap(testContext(t), b, nil)
	wantError(t, err, "box", ssh.StepConnect, "ssh: exit status 255: ssh: connect to host", "onnection refused", "is sshd running on")
	for _, tt := range []struct {
		host, option string
		step         ssh.Step
		texts        []string
	}{
		{"no-such-host.invalid", "-oBatchMode=yes", ssh.StepResolve, []string{"ould not resolve hostname", "check the spelling, DNS"}},
		{"box", "-oPubkeyAuthentication=no", ssh.StepAuthenticate, []string{"Permission denied", "try it by hand: ", "box true"}},
		{"box", "-oUserKnownHostsFile=/dev/null", ssh.StepHostKey, []string{"Host key verification failed", "try it by hand: "}},
	} {
		h.Port, h.IdentityFiles = 0, []string{"~/.ssh/id_ed25519"}
		strict := "yes"
		if tt.step == ssh.StepAuthenticate {
			strict = "no"
		}
		h.Command = []string{program0, tt.option, "-oStrictHostKeyChecking=" + strict, "-oBatchMode=yes", "-oUserKnownHostsFile=" + h.path("known")}
		_, err := connect(t, h.client(t), tt.host).Bootstrap(testContext(t), b, nil)
		wantError(t, err, tt.host, tt.step, tt.texts...)
	}
}

// The system's ssh is throttled as the built-in client is: an sshd that admits few connections gets few at a time, and
// none of its drops fails a host. Every login runs its command once.
func TestSystemSSHMaxStartups(t *testing.T) {
	program0, ok := lookPath("ssh")
	if !ok {
		t.Skip("needs ssh: install openssh-client")
	}
	h, d := sshdHome(t, "LogLevel VERBOSE\nMaxStartups 2:100:2")
	h.Command = []string{program0, "-oStrictHostKeyChecking=no", "-oBatchMode=yes", "-oUserKnownHostsFile=" + h.path("known")}
	h.IdentityFiles = []string{"~/.ssh/id_ed25519"}
	h.ConfigFile = "~/.ssh/config"
	c := h.client(t)
	const hosts = 12
	ran := h.path("ran")
	var wg sync.WaitGroup
	for i := range hosts {
		conn := connect(t, c, fmt.Sprintf("box%d", i))
		wg.Go(func() {
			if out, code := output(t, conn, "echo x >>"+ran+"; echo out; exit 9"); !strings.HasSuffix(out, "out\n") || code != 9 {
				t.Errorf("got %q and %d", out, code)
			}
		})
	}
	wg.Wait()
	if text, err := os.ReadFile(ran); err != nil || len(text) != 2*hosts {
		t.Errorf("the command ran %d times, want %d (%v)", len(text)/2, hosts, err)
	}
	d.wantFewAttempts(t, hosts)
}

// A real ssh-agent rather than the library's.
func TestSSHAgentProgram(t *testing.T) {
	h, _ := sshdHome(t, "")
	agentProgram, ok := lookPath("ssh-agent")
	adder, ok2 := lookPath("ssh-add")
	if !ok || !ok2 {
		t.Skip("needs ssh-agent: install openssh-client")
	}
	dir, err := os.MkdirTemp("", "agent")
	must.Do(t, err)
	defer os.RemoveAll(dir)
	h.Agent = filepath.Join(dir, "s")
	cmd := exec.Command(agentProgram, "-D", "-a", h.Agent)
	must.Do(t, cmd.Start())
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	must.Soon(t, "the agent listens", func() bool { _, err := os.Stat(h.Agent); return err == nil })
	add := exec.Command(adder, h.path(".ssh/id_ed25519"))
	add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+h.Agent)
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("ssh-add: %s", out)
	}
	for _, f := range []string{"id_ed25519", "id_ed25519.pub"} {
		must.Do(t, os.Remove(h.path(".ssh", f)))
	}
	connect(t, h.client(t), "box")
}
