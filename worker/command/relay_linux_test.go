package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/resume"
)

// deafened takes so many bytes and then no more, as what leads to a launcher that has hung up.
type deafened struct {
	io.Writer
	left int
	full chan struct{}
}

func (d *deafened) Write(b []byte) (int, error) {
	n, err := d.Writer.Write(b[:min(len(b), d.left)])
	if d.left -= n; err == nil && n < len(b) {
		close(d.full)
		err = errors.New("broken pipe")
	}
	return n, err
}

// patient waits for launchers as long as a test takes.
var patient = resume.Timeouts{First: time.Minute, Broken: time.Minute, Orphan: time.Minute}

// relayed is the daemon of a job, as far as relays see it, until the end of the test.
func relayed(t *testing.T, id string, patience resume.Timeouts) (resume.Session, *resume.Relay) {
	t.Helper()
	session := resume.Session{Cluster: "test", ID: fmt.Sprint(id, os.Getpid()), Slots: 1} // several of this test may run at once
	f, err := session.Listen()
	must.Do(t, err)
	socket, err := net.FileListener(f)
	f.Close()
	must.Do(t, err)
	ctx, over := context.WithCancel(context.Background())
	daemon := resume.NewRelay()
	var serving sync.WaitGroup
	serving.Go(func() {
		resume.Serve(ctx, socket, daemon, patience)
	})
	t.Cleanup(func() {
		daemon.Fail(io.EOF)
		over()
		serving.Wait()
	})
	return session, daemon
}

// TestRelayPassesTheLastLine: what a launcher sends as it hangs up reaches the daemon, also if that finds first that no
// one listens to it.
func TestRelayPassesTheLastLine(t *testing.T) {
	session, daemon := relayed(t, "lastwords0", patient)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer daemon.Fail(io.EOF)

	launcher, host := net.Pipe()
	defer launcher.Close()
	out := &deafened{host, 8, make(chan struct{})} // what was received by then, and nothing after
	wg.Go(func() {
		if err := relay(session, host, out); err != nil {
			t.Error(err)
		}
	})
	if _, err := launcher.Write(bytes.Repeat([]byte("k"), resume.TokenSize)); err != nil {
		t.Fatal(err)
	}
	near := resume.New()
	wg.Go(func() { near.Carry(launcher, launcher) })
	if _, err := daemon.Write([]byte("somebody there?")); err != nil {
		t.Fatal(err)
	}
	<-out.full
	time.Sleep(20 * time.Millisecond) // for a relay that thinks that this was all
	if !near.Close(5 * time.Second) {
		t.Error("the launcher could not say that it hangs up")
	}
	ends := time.AfterFunc(10*time.Second, func() { daemon.Fail(errors.New("it waits for another connection")) })
	defer ends.Stop()
	if _, err := daemon.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the daemon heard no goodbye: %v", err)
	}
}

// TestRelayOfNobody: a daemon whose launcher hung up before its first word does not wait for as long as one that is
// still to come.
func TestRelayOfNobody(t *testing.T) {
	session, daemon := relayed(t, "nobody0000", resume.Timeouts{First: time.Minute, Broken: time.Minute, Orphan: 10 * time.Millisecond})
	ends := time.AfterFunc(20*time.Second, func() { daemon.Fail(errors.New("it waits for another launcher")) })
	defer ends.Stop()
	must.Do(t, relay(session, bytes.NewReader(nil), io.Discard))
	if _, err := daemon.Read(make([]byte, 1)); !errors.Is(err, resume.ErrNotResumed) {
		t.Errorf("the daemon ends because %v", err)
	}
}

// TestRelayReplaced: a relay reports whether the daemon has ended, or has another connection with its launcher: one
// that was given up may come last.
func TestRelayReplaced(t *testing.T) {
	session, daemon := relayed(t, "replaced00", patient)
	token := bytes.Repeat([]byte("k"), resume.TokenSize)
	connect := func() (launcher net.Conn, ended chan error) {
		launcher, host := net.Pipe()
		t.Cleanup(func() { launcher.Close() })
		ended = make(chan error, 1)
		go func() {
			ended <- relay(session, host, host)
			host.Close()
		}()
		if _, err := launcher.Write(token); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(launcher, make([]byte, 8)); err != nil { // it carries the stream
			t.Fatal(err)
		}
		return launcher, ended
	}
	_, first := connect()
	_, second := connect()
	if err := <-first; !errors.Is(err, errReplaced) || err.Error() != "another connection has taken this one's place" {
		t.Errorf("one that was replaced ends with %v", err)
	}
	daemon.Fail(io.EOF)
	for deadline := time.Now().Add(10 * time.Second); session.Lives() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if err := relay(session, bytes.NewReader(token), io.Discard); err == nil || errors.Is(err, errReplaced) {
		t.Errorf("one that comes when the daemon has ended says %v", err)
	}
	// Which of the two ends, of the connection and of the socket, is seen first is chance: a relay that takes it
	// for the former connects once more.
	if err := <-second; err != nil && !errors.Is(err, errReplaced) {
		t.Errorf("the end of the daemon is told by %v", err)
	}
}

// TestRelayAwaitsDaemon: a relay that comes while the daemon is starting waits for its socket, for the end of the
// supervisor, or for the launcher to hang up.
func TestRelayAwaitsDaemon(t *testing.T) {
	session := resume.Session{Cluster: "test", ID: fmt.Sprint("awaited", os.Getpid()), Slots: 1}
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		must.Do(t, err)
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	await := func() (launcher *os.File, goesOn chan bool) {
		r, w := pipe()
		if _, err := w.Write(make([]byte, resume.TokenSize)); err != nil { // which the relay has yet to read
			t.Fatal(err)
		}
		goesOn = make(chan bool, 1)
		go func() { goesOn <- awaitDaemon(session, r) }()
		return w, goesOn
	}
	expect := func(goesOn chan bool, want bool, what string) {
		t.Helper()
		select {
		case got := <-goesOn:
			if got != want {
				t.Errorf("a relay goes on: %v, although %s", got, what)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a relay still waits, although " + what)
		}
	}
	_, alone := await()
	expect(alone, true, "no supervisor runs")

	held, release := pipe()
	supervisor := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "read x", "--session", session.ID}, Stdin: held}
	must.Do(t, supervisor.Start())
	t.Cleanup(func() { supervisor.Process.Kill() })
	launcher, given := await()
	_, first := await()
	select {
	case <-first:
		t.Error("a relay does not wait while the supervisor runs")
	case <-time.After(200 * time.Millisecond):
	}
	launcher.Close()
	expect(given, false, "the launcher has hung up")
	f, err := session.Listen()
	must.Do(t, err)
	expect(first, true, "there is a socket")
	f.Close()
	_, last := await()
	release.Close()
	supervisor.Wait()
	expect(last, true, "the supervisor has ended")
}
