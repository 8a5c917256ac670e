package dial

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/hosts"
	"gorun/launcher/scheduler"
	"gorun/launcher/ssh"
	"gorun/rendezvous/step"
)

// serveAsHost is what the binary does on a host, if this program was started as that.
func serveAsHost() {
	if len(os.Args) < 3 || os.Args[1] != "worker" || os.Args[2] != "--step" {
		return
	}
	var err error
	in := io.Reader(os.Stdin)
	if len(os.Args) > 3 {
		in, err = os.Open(os.Args[3])
		os.Remove(os.Args[3])
	}
	var o step.Order
	if err == nil {
		o, err = step.ReadOrder(in)
	}
	o.Host = cmp.Or(o.Host, os.Getenv("STEP_HOST"))
	if err == nil {
		err = step.Serve(context.Background(), o, func(args []string) *exec.Cmd { return exec.Command(args[0], args[1:]...) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// allAtOnce is a command that starts a program on all hosts, which all get what the command reads; it fails
// where the word down is among the hosts.
const allAtOnce = `#!/bin/bash
words=$*
echo "${words//[$'\n']/ }" >>"$RUNS"
hosts=$1; shift
[ -z "$HIDDEN" ] || set -- "${@/#$HIDDEN//nonexistent}"
case $hosts in *down*) echo "srun: error: Task launch for StepId=1.0 failed on node down: Communication connection failure" >&2; exit 1;; esac
pipes=()
for host in ${hosts//,/ }; do
	exec {fd}> >(STEP_HOST=$host HOME=$DIR/$host exec "$@")
	pipes+=("/dev/fd/$fd")
done
cat | tee "${pipes[@]}" >/dev/null
wait
`

// oneByOne is a command whose program reads nothing.
const oneByOne = `#!/bin/sh
echo "$*" >>"$RUNS"
case $1 in down) echo "no such host" >&2; exit 1;; esac
shift; exec "$@" </dev/null
`

// stepsBy returns what starts programs by a script in place of a scheduler's command, and the file with its command
// lines.
func stepsBy(t *testing.T, script string, template string) (s *Steps, runs string) {
	t.Helper()
	dir := t.TempDir()
	command := filepath.Join(dir, "command")
	must.Do(t, os.WriteFile(command, []byte(script), 0o700))
	l, err := scheduler.Parse(command + template)
	must.Do(t, err)
	exe, err := os.Executable()
	must.Do(t, err)
	s = &Steps{Launcher: l, Exe: exe, Binary: ReadBinary(exe, ""), Dir: filepath.Join(dir, "orders"),
		Env: append(os.Environ(), "RUNS="+filepath.Join(dir, "runs"), "DIR="+dir)}
	t.Cleanup(s.Close)
	return s, filepath.Join(dir, "runs")
}

// greet runs echo on a host.
func greet(t *testing.T, s *Steps, host string) (string, error) {
	return run(t, s, host, "/bin/echo", "hello from", host)
}

// run runs a program on a host, and returns what it writes.
func run(t *testing.T, s *Steps, host string, words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, _, err := s.start(ctx, host, words)
	if err != nil {
		return "", err
	}
	defer d.Close()
	out, _ := io.ReadAll(d.Out)
	if code, err := d.Status(); code != 0 || err != nil {
		t.Errorf("%s: code %d, %v", host, code, err)
	}
	return string(out), nil
}

// greetAll runs echo on all hosts at once; on one named down it must fail, and that error is returned.
func greetAll(t *testing.T, s *Steps, hosts ...string) (down error) {
	t.Helper()
	var all sync.WaitGroup
	for _, host := range hosts {
		all.Go(func() {
			out, err := greet(t, s, host)
			switch {
			case host == "down" && err != nil:
				down = err
			case host == "down" || out != "hello from "+host+"\n" || err != nil:
				t.Errorf("%s: got %q, %v", host, out, err)
			}
		})
	}
	all.Wait()
	return down
}

// started returns the first word of each command line.
func started(runs string) (words []string) {
	text, _ := os.ReadFile(runs)
	for line := range strings.Lines(string(text)) {
		words = append(words, strings.Fields(line)[0])
	}
	return words
}

// TestStepOfMany: one run of the command starts all hosts, and later ones are started by another.
func TestStepOfMany(t *testing.T) {
	s, runs := stepsBy(t, allAtOnce, " {hosts} {program}")
	greetAll(t, s, "a", "b", "c")
	greetAll(t, s, "b", "d") // b has a step process
	s.Close()
	text, _ := os.ReadFile(runs)
	if words := started(runs); len(words) != 2 || len(words[0]) != len("a,b,c") || words[1] != "d" {
		t.Errorf("the command was run for %q", words)
	}
	if strings.Contains(string(text), "key") {
		t.Errorf("the key is in a command line: %s", text)
	}
}

// TestStepsApart: each host has a run of the command, as an elastic job wants it.
func TestStepsApart(t *testing.T) {
	s, runs := stepsBy(t, allAtOnce, " {hosts} {program}")
	s.Apart = true
	greetAll(t, s, "a", "b", "down")
	s.Close()
	words := started(runs)
	if slices.Sort(words); !slices.Equal(words, []string{"a", "b", "down"}) {
		t.Errorf("the command was run for %q", words)
	}
}

// TestStepBringsBinary: hosts that lack the binary get it by standard input, those that have it do not wait for that.
func TestStepBringsBinary(t *testing.T) {
	s, _ := stepsBy(t, allAtOnce, " {hosts} {program}")
	s.Launcher.Exact = true
	text := must.Read(t, s.Exe)
	sum := sha256.Sum256(text)
	b := ssh.Binary{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(text)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}
	s.Binary = func() (ssh.Binary, error) { return b, nil }
	s.Env = append(s.Env, "XDG_CACHE_HOME=", "HIDDEN="+s.Exe)
	mask, err := exec.Command("/bin/sh", "-c", "umask").Output()
	must.Do(t, err)
	for round := range 2 {
		greetAll(t, s, "a", "b")
		var all sync.WaitGroup
		for _, host := range []string{"a", "b"} {
			all.Go(func() {
				if got, err := run(t, s, host, "/bin/sh", "-c", "umask"); got != string(mask) || err != nil {
					t.Errorf("round %d: ranks have umask %q, want %q: %v", round, got, mask, err)
				}
			})
		}
		all.Wait()
		s.Close()
		for _, host := range []string{"a", "b"} {
			if got, err := os.ReadFile(filepath.Join(filepath.Dir(s.Dir), host, ".cache", "gorun", b.SHA256, "gorun")); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s: %d bytes, %v", host, len(got), err)
			}
		}
		again := ssh.Binary{SHA256: b.SHA256, Size: b.Size, Open: func() (io.ReadCloser, error) { return nil, errors.New("it is needed again") }}
		s = &Steps{Launcher: s.Launcher, Exe: s.Exe, Binary: func() (ssh.Binary, error) { return again, nil }, Dir: s.Dir, Env: s.Env}
		t.Cleanup(s.Close)
	}
}

// TestStepFollowsNoLink: a place for the binary in a directory of all users is a directory of this user's, and no link to one,
// which its owner could change.
func TestStepFollowsNoLink(t *testing.T) {
	home, name := t.TempDir(), fmt.Sprintf("of-%d", os.Getpid())
	program := "#!/bin/sh\necho started\n"
	for _, file := range [][2]string{{"bin/id", "#!/bin/sh\necho " + name + "\n"}, {"gorun/sum/gorun", program}, {"gorun/sum/ok", ""}} {
		path := filepath.Join(home, file[0])
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(file[1]), 0o700)))
	}
	shared := "/tmp/gorun-" + name
	must.Do(t, os.Symlink(filepath.Join(home, "gorun"), shared))
	defer os.Remove(shared)
	for cache, want := range map[string]string{home: "started\n", filepath.Join(home, "bin/id"): "no place for the binary on "} {
		cmd := exec.Command("/bin/sh", "-c", runScript, "gorun", "/none", "1", "sum", fmt.Sprint(len(program)))
		cmd.Env = []string{"PATH=" + filepath.Join(home, "bin") + ":" + os.Getenv("PATH"), "XDG_CACHE_HOME=" + cache}
		if out, _ := cmd.CombinedOutput(); !strings.HasPrefix(string(out), want) {
			t.Errorf("with %s: %q, want %q", cache, out, want)
		}
	}
}

// TestStepWithoutHost: a host that a step does not start fails with the line that the command printed about it, and the others of
// the step are started by another.
func TestStepWithoutHost(t *testing.T) {
	s, _ := stepsBy(t, allAtOnce, " {hosts} {program}")
	err := greetAll(t, s, "a", "down", "b")
	var he *hosts.Error
	if !errors.As(err, &he) || he.Step != "start step" || !strings.Contains(err.Error(), "failed on node down") || he.Hint == "" {
		t.Errorf("got %v", err)
	}
}

// TestStepBySilentCommand: a command that passes on no standard input has the order in a file, which does not stay.
func TestStepBySilentCommand(t *testing.T) {
	s, _ := stepsBy(t, oneByOne, " {host} {program}")
	s.Launcher.Silent = true
	if err := greetAll(t, s, "a", "b", "down"); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("got %v", err)
	}
	s.Close()
	if left, _ := os.ReadDir(s.Dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestStepsWithoutCommand: what is wrong with the command itself.
func TestStepsWithoutCommand(t *testing.T) {
	s, _ := stepsBy(t, oneByOne, " {host} {program}")
	must.Do(t, os.Remove(s.Launcher.Program()))
	if _, err := greet(t, s, "a"); err == nil || !strings.Contains(err.Error(), "a: start step: run ") {
		t.Errorf("got %v", err)
	}
}

// impatient shortens the times of a step until the test ends.
func impatient(t *testing.T) {
	was, end := rejoin, stepEnd
	rejoin, stepEnd = 200*time.Millisecond, 300*time.Millisecond
	t.Cleanup(func() { rejoin, stepEnd = was, end })
}

// closes ends steps, which must not wait for ever.
func closes(t *testing.T, s *Steps) {
	t.Helper()
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		panic("the commands of the steps never end") // as the cleanup of the test would not
	}
}

// lingering is a command that goes on after its program until it may read no more.
const lingering = `#!/bin/sh
echo "$*" >>"$RUNS"
shift
read -r order
echo "$order" | "$@"
cat >/dev/null
`

// TestStepOutlived: a command that goes on after another has started its host ends with the others.
func TestStepOutlived(t *testing.T) {
	impatient(t)
	s, runs := stepsBy(t, lingering, " {host} {program}")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, _, err := s.start(ctx, "a", []string{"/bin/sh", "-c", "kill -9 $PPID"}) // its parent is the step process
	if err == nil {
		d.Status()
	}
	greetAll(t, s, "a")
	if text, _ := os.ReadFile(runs); strings.Count(string(text), "\n") != 2 {
		t.Errorf("the command was run for %q", text)
	}
	closes(t, s)
}

// stubborn is a wrapper that prints a long line, and whose children hold its output. All of them ignore SIGTERM.
const stubborn = `#!/bin/sh
trap '' TERM
shift
exec 3>"$DIR/alive"
head -c 200000 /dev/zero | tr '\0' x
echo
sleep 600 &
"$@"
sleep 600
`

// TestStepOfStubbornCommand: the end of a command is the end of all that it has started, and no line ends a step.
func TestStepOfStubbornCommand(t *testing.T) {
	impatient(t)
	s, _ := stepsBy(t, stubborn, " {host} {program}")
	fifo := filepath.Join(filepath.Dir(s.Dir), "alive")
	must.Do(t, syscall.Mkfifo(fifo, 0o600))
	alive, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must.Do(t, err)
	defer alive.Close()
	greetAll(t, s, "a")
	closes(t, s)
	alive.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := alive.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("what the command has started goes on: %v", err)
	}
}
