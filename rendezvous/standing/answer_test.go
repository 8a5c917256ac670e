package standing

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// TestNoAnswer: a host that refuses a connection, or hangs up, is there, and so is one that takes a connection and
// then sends nothing, which is not waited for without an end; one that takes none may not be.
func TestNoAnswer(t *testing.T) {
	l := must.Listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	client, channel := ofKey(t)
	patient := client
	client.knownHostTimeout, client.startTimeout = time.Second, 100*time.Millisecond
	try := func(what, addr string, want bool) {
		t.Helper()
		_, err := client.enter(t.Context(), addr, &wire.Resume{Session: "none"})
		if err == nil || noAnswer(err) != want {
			t.Errorf("%s: %v is taken for no answer: %v, want %v", what, err, !want, want)
		}
	}
	try("a host that hangs up", l.Addr().String(), false)
	l.Close()
	<-done
	try("a host that refuses", l.Addr().String(), false)
	mute := must.Listen(t)
	heard := make(chan error, 1)
	go func() {
		conn, err := mute.Accept()
		if err == nil {
			defer conn.Close()
			var secure *tls.Conn
			if secure, _, err = channel.Server(t.Context(), conn); err == nil {
				_, err = io.Copy(io.Discard, secure) // until the other side has had enough
			}
		}
		heard <- err
	}()
	try("a host that takes what is asked, and says nothing", mute.Addr().String(), false)
	must.Report(t, <-heard)
	mute.Close()
	client.knownHostTimeout = time.Nanosecond // too short for any
	try("nobody", l.Addr().String(), true)

	usual := timing.ConnectTimeout
	defer func() { timing.ConnectTimeout = usual }()
	timing.ConnectTimeout = time.Nanosecond
	if _, err := patient.Invite(t.Context(), l.Addr().String(), &wire.Keep{}); !noAnswer(err) {
		t.Errorf("a host that may be gone is waited for: %v", err)
	}

	s := &DaemonStream{}
	first := time.Now()
	silence := &net.OpError{Op: "dial", Err: errors.New("no route")}
	expect := func(what string, away, silent time.Time) {
		t.Helper()
		if want := (liveness.Line{Broken: away, Unanswered: silent}); s.Away() != want {
			t.Errorf("%s: %+v, want %+v", what, s.Away(), want)
		}
	}
	s.lost(first)
	s.tried(first.Add(time.Second), silence)
	expect("a host that does not answer", first, first)
	s.tried(first.Add(2*time.Second), ErrHungUp)
	expect("a host that has no daemon", first, time.Time{})
	s.tried(first.Add(3*time.Second), silence)
	expect("a host that answers no more", first, first.Add(3*time.Second))
	s.tried(first.Add(4*time.Second), nil)
	expect("a host that is back", time.Time{}, time.Time{})
}
