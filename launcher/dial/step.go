package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/hosts"
	"gorun/launcher/output"
	"gorun/launcher/scheduler"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
	"gorun/rendezvous/step"
)

const (
	// gather is how long the first host of a step waits for others: a launch asks for all of them at once.
	gather = 20 * time.Millisecond
	// stepLook is how often a start that waits for its host checks whether to begin another step.
	stepLook = 500 * time.Millisecond
	// maxSaid bounds a line that a step has said.
	maxSaid = 4 << 10
)

// Tests shorten these.
var (
	// rejoin is how long a host may be without a connection before another step is begun for it.
	rejoin = 3 * time.Second
	// stepEnd is how long the command of a step may take to end with the job.
	stepEnd = 5 * time.Second
)

// Steps starts programs by a scheduler's command. Where that takes a script it also brings the binary.
type Steps struct {
	Launcher scheduler.Launcher
	Exe      string                     // this binary, which most hosts have at the same path
	Binary   func() (ssh.Binary, error) // for hosts that lack it
	Env      []string                   // of the command
	Dir      string                     // of files with orders, for programs without standard input; "" refuses those
	// Apart starts each host by a command of its own, even if one command can start many. When a node loses its part of
	// a step, srun gives up the whole step, even with --no-kill.
	Apart bool
	// Groups has the number of the heterogeneous part that a host belongs to; nil if a job has one part.
	Groups map[string]int

	hub  func() (*step.Hub, error) // made once
	once sync.Once

	mu      sync.Mutex
	closed  bool
	of      map[string]*running // by host, the last step that started it
	live    map[*running]bool   // all that have not ended
	waiting *running            // the step that still gathers hosts, nil if none does
	running sync.WaitGroup
}

// running is one run of the command.
type running struct {
	hosts []string
	over  chan struct{} // closed when it has ended
	begun time.Time
	cmd   *exec.Cmd
	in    io.Closer // its standard input
	wait  func() error
	said  ssh.Said
	err   error // after over
}

// runScript runs the binary that is on a host, or asks for it. Standard input begins with the order, a line that the
// program reads. If the script asks, the binary follows, and then the order once more. The directories are the same as
// for a login by ssh.
const runScript = `f=$1 n=$2 s=$3 m=$4
there() { [ -f "$f" ] && [ -x "$f" ] && [ "$(wc -c <"$f")" -eq "$1" ]; }
ours() { case $d in /tmp/gorun-*) ! [ -h "$d" ];; esac && [ -O "$d" ]; }
there "$n" && exec "$f" worker --step
for d in "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/gorun" "/tmp/gorun-$(id -u)"; do
  f=$d/$s/gorun k=$d/$s/ok
  ours && there "$m" && [ -f "$k" ] && ! [ "$f" -nt "$k" ] && exec "$f" worker --step
done
o=$(umask)
umask 077
for d in "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/gorun" "/tmp/gorun-$(id -u)"; do
  mkdir -p "$d/$s" 2>/dev/null && ours || continue
  f=$d/$s/gorun k=$d/$s/ok t=$d/$s/.up-step-$$
  : >"$t" && chmod 700 "$t" || continue
  trap 'rm -f "$t"' 0
  echo gorun-step need
  read -r _ && head -c "$m" >"$t" && [ "$(wc -c <"$t")" -eq "$m" ] && mv -f "$t" "$f" && : >"$k" || exit 1
  trap - 0
  umask "$o"
  exec "$f" worker --step
done
echo "no place for the binary on $(uname -n)" >&2
exit 1
`

// needs is the line by which a host asks for the binary.
const needs = "gorun-step need"

// prepare makes what all steps share.
func (s *Steps) prepare() {
	s.once.Do(func() {
		s.hub = sync.OnceValues(step.Listen)
		s.of, s.live = map[string]*running{}, map[*running]bool{}
	})
}

// start implements starter.
func (s *Steps) start(ctx context.Context, host string, args []string) (*login, string, error) {
	s.prepare()
	hub, err := s.hub()
	if err != nil {
		return nil, "", &hosts.Error{Host: host, Step: "start step", Err: err}
	}
	session, err := s.session(ctx, hub, host, args)
	if err != nil {
		return nil, "", err
	}
	d := newLogin(session.Stdin, session.Stdout, session.Stderr, session.Wait)
	d.Close, d.who, d.blind = session.Close, talk.Identity{Own: true}, true
	ip := ""
	if a, ok := session.RemoteAddr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		ip = a.IP.String()
	}
	return d, ip, nil
}

// session runs a command on a host. It begins a step if the host needs one.
func (s *Steps) session(ctx context.Context, hub *step.Hub, host string, args []string) (*step.Session, error) {
	life, end := context.WithCancel(ctx) // of the session
	type result struct {
		session *step.Session
		err     error
	}
	got := make(chan result, 1)
	hub.Expect(host)
	go func() {
		session, err := hub.Run(life, host, args)
		got <- result{session, err}
	}()
	fail := func(err error) (*step.Session, error) {
		end()
		if r := <-got; r.err == nil { // it came after all
			r.session.Close()
		}
		return nil, err
	}
	look := time.NewTicker(stepLook)
	defer look.Stop()
	for {
		r, err := s.ensure(hub, host)
		if err != nil {
			return fail(&hosts.Error{Host: host, Step: "start step", Err: err, Code: failure.ExitTransport})
		}
		var over chan struct{}
		if absent, _ := hub.Absent(host); absent && r != nil {
			over = r.over
		}
		select {
		case r := <-got:
			if r.err != nil {
				end()
				return nil, r.err
			}
			context.AfterFunc(ctx, end)
			return r.session, nil
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		case <-over:
			absent, after := hub.Absent(host)
			was := after > 0 && time.Since(r.begun) > after // the step had started gorun here
			if absent && !was && !r.others(host) {
				return fail(s.explain(r, host))
			}
		case <-look.C:
		}
	}
}

// ensure returns the last step that started a host, nil if there is none. It begins another one if the host has no
// connection, and no step is about to connect it.
func (s *Steps) ensure(hub *step.Hub, host string) (*running, error) {
	absent, after := hub.Absent(host)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[host]
	switch {
	case s.closed:
		return nil, net.ErrClosed
	case !absent:
		return r, nil
	case r != nil && !r.ended() && (after == 0 || after < rejoin || time.Since(r.begun) < rejoin):
		return r, nil
	case r != nil && !r.ended() && r == s.waiting:
		return r, nil
	}
	shared := s.Launcher.Shared && !s.Apart
	if !shared || s.waiting == nil || s.Groups[s.waiting.hosts[0]] != s.Groups[host] {
		next := &running{over: make(chan struct{}), begun: time.Now(), said: ssh.Said{Limit: 16 << 10}}
		s.waiting = next
		s.live[next] = true
		delay := gather
		if !shared {
			delay = 0
		}
		s.running.Go(func() {
			time.Sleep(delay)
			s.run(hub, next)
		})
	}
	r = s.waiting
	r.hosts = append(r.hosts, host)
	s.of[host] = r
	if !shared {
		s.waiting = nil
	}
	return r, nil
}

func (r *running) ended() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// others reports whether a step has ended because of other hosts than this one.
func (r *running) others(host string) bool {
	lost := scheduler.LostHosts(r.said.String())
	return len(lost) > 0 && len(r.hosts) > 1 && !slices.Contains(lost, host)
}

// explain returns the error of a host whose step has ended.
func (s *Steps) explain(r *running, host string) error {
	said := r.said.String()
	e := &hosts.Error{Host: host, Step: "start step", Err: r.err, Code: failure.ExitTransport}
	if last := complaint(said); last != "" {
		e.Err = errors.New(last)
	} else if e.Err == nil {
		e.Err = fmt.Errorf("%s has ended, and gorun was not started here", s.Launcher.Program())
	}
	e.Hint = s.Launcher.Hint(said)
	return e
}

// complaint returns the line of a command's output that says what went wrong: the first error, or else the last line.
func complaint(said string) string {
	for line := range strings.Lines(said) {
		if strings.Contains(line, "error: ") {
			return strings.TrimSpace(line)
		}
	}
	return failure.LastLine(said)
}

// run runs the command of a step to its end.
func (s *Steps) run(hub *step.Hub, r *running) {
	s.mu.Lock()
	if s.waiting == r {
		s.waiting = nil
	}
	closed := s.closed
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.live, r)
		s.mu.Unlock()
		close(r.over)
	}()
	if closed {
		r.err = net.ErrClosed
		return
	}
	argv, file, err := s.argv(r.hosts[0], hub)
	if err != nil {
		r.err = err
		return
	}
	if file != "" {
		defer os.Remove(file) // by now the host has read it, or never will
	}
	var more []string
	if s.Groups != nil {
		more = []string{"--het-group=" + strconv.Itoa(s.Groups[r.hosts[0]])}
	}
	words := s.Launcher.Command(r.hosts, more, argv)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = s.Env
	cmd.SysProcAttr = ownGroup() // a Ctrl-C at the terminal is for the launcher
	cmd.WaitDelay = lastWords
	ask := make(chan struct{}, 1)
	lines := output.NewSplitter(maxSaid)
	take := func(line []byte, _ output.End) {
		if !bytes.HasSuffix(line, []byte(needs)) {
			fmt.Fprintf(&r.said, "%s\n", line)
			return
		}
		select {
		case ask <- struct{}{}:
		default: // another host has asked, and what comes is for all
		}
	}
	cmd.Stdout, cmd.Stderr = lines.Writer(take), &r.said
	in, err := cmd.StdinPipe()
	if err == nil {
		r.wait, err = ssh.StartBound(cmd)
	}
	if err != nil {
		r.err = fmt.Errorf("run %s: %w", words[0], err)
		return
	}
	s.mu.Lock()
	r.cmd, r.in = cmd, in
	if s.closed {
		in.Close()
	}
	s.mu.Unlock()
	var feeding sync.WaitGroup
	name := ""
	if !s.Launcher.Shared {
		name = r.hosts[0]
	}
	order := hub.Order(name)
	ended := make(chan struct{})
	feeding.Go(func() { s.feed(in, order, ask, ended) })
	if r.err = r.wait(); errors.Is(r.err, exec.ErrWaitDelay) { // something that it has started holds its output
		r.err = nil
	}
	lines.Close(take)
	close(ended)
	feeding.Wait()
}

// argv returns the command line that a step runs on hosts, and the file with its order, "" if it reads standard input.
func (s *Steps) argv(host string, hub *step.Hub) (argv []string, file string, err error) {
	if s.Launcher.Silent {
		if file, err = writeOrder(s.Dir, hub.Order(host)); err != nil {
			return nil, "", fmt.Errorf("write order: %w", err)
		}
		return []string{s.Exe, "worker", "--step", file}, file, nil
	}
	if !s.Launcher.Exact {
		return []string{s.Exe, "worker", "--step"}, "", nil
	}
	b, err := s.Binary()
	if err != nil {
		return nil, "", err
	}
	info, err := os.Stat(s.Exe)
	if err != nil {
		return nil, "", fmt.Errorf("find this binary: %w", err)
	}
	argv = []string{"/bin/sh", "-c", runScript, "gorun", s.Exe, strconv.FormatInt(info.Size(), 10), b.SHA256, strconv.FormatInt(b.Size, 10)}
	return argv, "", nil
}

// feed writes the order, and the binary once a host asks for it. It keeps standard input open until the step ends,
// because some commands end their programs when it closes.
func (s *Steps) feed(in io.WriteCloser, order []byte, ask, ended <-chan struct{}) {
	defer in.Close()
	if _, err := in.Write(order); err != nil {
		return
	}
	select {
	case <-ask:
	case <-ended:
		return
	}
	b, err := s.Binary()
	if err != nil {
		return
	}
	program, err := b.Open()
	if err != nil {
		return
	}
	_, err = io.Copy(in, program)
	program.Close()
	if err == nil {
		_, err = in.Write(order)
	}
	if err == nil {
		<-ended
	}
}

// Close ends all step processes, and waits for the end of the commands.
func (s *Steps) Close() {
	s.prepare()
	s.mu.Lock()
	s.closed = true
	none := len(s.of) == 0
	s.mu.Unlock()
	if none {
		return
	}
	if hub, err := s.hub(); err == nil {
		hub.Close()
	}
	s.mu.Lock()
	for r := range s.live {
		if r.in != nil {
			r.in.Close()
		}
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() { s.running.Wait(); close(ended) }()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-ended:
			return
		case <-time.After(stepEnd):
			s.signal(sig)
		}
	}
	<-ended
}

// signal sends a signal to all commands, and to what they have started: a wrapper may not pass it on.
func (s *Steps) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.live {
		if r.cmd != nil {
			signalGroup(r.cmd.Process.Pid, sig)
		}
	}
}
