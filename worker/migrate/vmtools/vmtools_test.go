package vmtools_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/contrib/must"
	"gorun/worker/migrate"
	"gorun/worker/migrate/vmtools"
)

// playDaemon has the test binary be a daemon that hears of moves, and what it has in common with others.
const playDaemon = "TEST_VMTOOLS_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(playDaemon); dir != "" {
		vmtools.Run(context.Background(), vmtools.Config{Path: filepath.Join(dir, "vmtoolsd"), Token: tokenFile(dir),
			Handle: func(_ context.Context, ev migrate.Event, _ func()) { fmt.Println(ev.Text) }})
	}
	goleak.VerifyTestMain(m)
}

// tokenFile is where the machine's registration is kept.
func tokenFile(dir string) string { return filepath.Join(dir, "kept", "vmtools", "here") }

// machine is one whose vmtoolsd is a script.
type machine struct {
	t      *testing.T
	dir    string // of the script
	state  string // of this host
	events chan migrate.Event
	stop   func()
}

func newMachine(t *testing.T, files map[string]string) *machine {
	t.Helper()
	dir := t.TempDir()
	host, err := os.Hostname()
	must.Do(t, err)
	m := &machine{t: t, dir: dir, state: filepath.Join(dir, host)}
	for _, name := range []string{"vmtoolsd", "vmware-toolbox-cmd"} {
		b, err := os.ReadFile(filepath.Join("../../../testdata/vmtools", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o700)
		}
		must.Do(t, err)
	}
	must.Do(t, os.MkdirAll(filepath.Join(m.state, "events"), 0o700))
	for name, text := range files {
		m.write(name, text)
	}
	m.begin()
	t.Cleanup(func() { m.stop() })
	return m
}

// begin listens until stop is called.
func (m *machine) begin() {
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	m.stop, m.events = func() { cancel(); <-done }, make(chan migrate.Event, 64)
	go func() {
		defer close(done)
		vmtools.Run(ctx, vmtools.Config{Path: filepath.Join(m.dir, "vmtoolsd"), Token: tokenFile(m.dir), Handle: func(_ context.Context, ev migrate.Event, ready func()) {
			m.events <- ev
			if ready != nil {
				go ready() // it returns when Run took it, or ended
			}
		}})
	}()
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.state, name)
	must.Do(m.t, os.WriteFile(m.dir+"/new", []byte(text), 0o600))
	must.Do(m.t, os.Rename(m.dir+"/new", path))
}

func (m *machine) happens(n int, event string, more string) {
	m.t.Helper()
	m.write(fmt.Sprintf("events/%d", n), fmt.Sprintf(`{"result":true,"eventType":%q,"eventGenTimeInSec":%d,"notificationTimeoutInSec":120,"operationId":6279072692702276663%s}`,
		event, time.Now().Unix(), more))
}

func (m *machine) await(kind migrate.Kind) migrate.Event {
	m.t.Helper()
	select {
	case ev := <-m.events:
		if ev.Kind != kind {
			m.t.Fatalf("event %+v, want kind %d", ev, kind)
		}
		return ev
	case <-time.After(30 * time.Second):
		m.t.Fatalf("no event of kind %d", kind)
		panic("unreachable")
	}
}

func (m *machine) log() string {
	b, _ := os.ReadFile(filepath.Join(m.state, "log"))
	return strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", ", ")
}

// TestDialogue goes through moves with the whole protocol, and loses its registration in between.
func TestDialogue(t *testing.T) {
	m := newMachine(t, nil)
	m.await(migrate.Registered)
	m.happens(1, "start", "")
	m.await(migrate.Starts)
	m.await(migrate.Acknowledged)
	m.happens(2, "timeout-change", `,"newNotificationTimeoutInSec":60`)
	m.await(migrate.Acknowledged)
	m.happens(3, "end", `,"opStatus":"success"`)
	if ev := m.await(migrate.Ends); ev.Text != "success" || ev.Operation != "6279072692702276663" {
		t.Errorf("ends with %+v", ev)
	}
	must.Do(t, os.Remove(filepath.Join(m.state, "token")))
	m.await(migrate.Registered)
	m.stop()
	const ack = "ack 6279072692702276663"
	if want := strings.Join([]string{"register", ack, ack, "register", "unregister"}, ", "); m.log() != want {
		t.Errorf("vSphere heard: %s, want %s", m.log(), want)
	}
}

// TestHostileArguments: users of the machine who read the command lines of its processes find no token there. With it
// they could acknowledge moves or end the registration.
func TestHostileArguments(t *testing.T) {
	m := newMachine(t, nil)
	m.await(migrate.Registered)
	token, err := os.ReadFile(filepath.Join(m.state, "token"))
	must.Do(t, err)
	m.happens(1, "start", "")
	m.await(migrate.Starts)
	m.await(migrate.Acknowledged)
	m.stop()
	seen, err := os.ReadFile(filepath.Join(m.state, "arguments"))
	if n := strings.Count(string(seen), "\n"); err != nil || n < 3 || strings.Contains(string(seen), strings.TrimSpace(string(token))) {
		t.Errorf("%d calls, token %s, %v:\n%s", n, token, err, seen)
	}
}

// TestTwoMoves: the session is another one after each move, by which no one takes the next one for over.
func TestTwoMoves(t *testing.T) {
	m := newMachine(t, nil)
	m.await(migrate.Registered)
	for move, lasts := range []time.Duration{0, migrate.Idle + 2*migrate.Busy} {
		m.happens(2*move, "start", "")
		m.await(migrate.Starts)
		m.await(migrate.Acknowledged)
		time.Sleep(lasts) // the session is looked at
		m.happens(2*move+1, "end", `,"opStatus":"success"`)
		if ev := m.await(migrate.Ends); ev.Text != "success" {
			t.Errorf("move %d ends with %+v", move, ev)
		}
	}
}

// TestSessionHangs: who asks for the session, and gets no answer, acknowledges a move all the same.
func TestSessionHangs(t *testing.T) {
	m := newMachine(t, map[string]string{"session": "abc"})
	m.await(migrate.Registered)
	time.Sleep(50 * time.Millisecond) // the session is known
	must.Do(t, os.WriteFile(filepath.Join(m.dir, "vmware-toolbox-cmd"), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700))
	m.happens(1, "start", "")
	m.await(migrate.Starts)
	m.await(migrate.Acknowledged)
	m.happens(2, "end", `,"opStatus":"success"`)
	m.await(migrate.Ends)
}

// TestKilled: only one of a user's daemons on a machine hears of moves. When it is killed, the next one ends its
// registration, of which vSphere has room for one, and has its own.
func TestKilled(t *testing.T) {
	m := newMachine(t, nil)
	m.await(migrate.Registered)
	info, err := os.Stat(tokenFile(m.dir))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the token is in a file that is %v, %v", info.Mode(), err)
	}
	m.stop()
	if _, err := os.Stat(tokenFile(m.dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a registration that has ended: %v", err)
	}

	daemon := exec.Command(os.Args[0])
	daemon.Env = append(os.Environ(), playDaemon+"="+m.dir)
	out, err := daemon.StdoutPipe()
	if err == nil {
		err = daemon.Start()
	}
	must.Do(t, err)
	defer daemon.Wait()
	defer daemon.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.Contains(line, "vSphere announces moves") {
		t.Fatalf("the daemon says %q, %v", line, err)
	}
	m.begin()
	if ev := m.await(migrate.Refused); !strings.Contains(ev.Text, "another job of the same user on this machine receives them") {
		t.Errorf("refused: %s", ev.Text)
	}
	must.Do(t, daemon.Process.Kill())
	m.await(migrate.Registered)
	m.happens(1, "start", "")
	m.await(migrate.Starts)
	m.await(migrate.Acknowledged)
	m.stop()
	if want := "register, unregister, register, unregister, register, ack 6279072692702276663, unregister"; m.log() != want {
		t.Errorf("vSphere heard: %s, want %s", m.log(), want)
	}
}

// TestKeptNowhere: where no file can be made, moves are announced all the same.
func TestKeptNowhere(t *testing.T) {
	m := newMachine(t, map[string]string{"off": ""})
	m.await(migrate.Refused)
	m.stop()
	must.Do(t, errors.Join(os.RemoveAll(filepath.Join(m.dir, "kept")), os.WriteFile(filepath.Join(m.dir, "kept"), nil, 0o600), os.Remove(filepath.Join(m.state, "off"))))
	m.begin()
	m.await(migrate.Registered)
}

// TestSession: where notifications are off, the id of the session shows the move.
func TestSession(t *testing.T) {
	m := newMachine(t, map[string]string{"off": "", "session": "0xa1\n"})
	if ev := m.await(migrate.Refused); !strings.Contains(ev.Text, "not enabled") {
		t.Errorf("refused: %s", ev.Text)
	}
	m.write("session", "0xb2\n")
	m.await(migrate.Moved)
}

// TestNoProgram: one line reports that nothing can be learned.
func TestNoProgram(t *testing.T) {
	events := make(chan migrate.Event, 64)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		vmtools.Run(ctx, vmtools.Config{Path: filepath.Join(t.TempDir(), "vmtoolsd"), Handle: func(_ context.Context, ev migrate.Event, _ func()) { events <- ev }})
	}()
	if ev := <-events; ev.Kind != migrate.Refused || !strings.Contains(ev.Text, "no such file") {
		t.Errorf("event %+v", ev)
	}
	cancel()
	<-done
}
