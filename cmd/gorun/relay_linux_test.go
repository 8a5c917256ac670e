package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

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

// TestRelayLastWords: what a launcher says as it hangs up reaches the daemon, also if that finds first that nobody listens to it.
func TestRelayLastWords(t *testing.T) {
	session := resume.Session{Cluster: "test", ID: "lastwords0", Slots: 1}
	f, err := session.Listen()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	ctx, over := context.WithCancel(t.Context())
	daemon := resume.NewRelay()
	var wg sync.WaitGroup
	wg.Go(func() {
		resume.Serve(ctx, socket, daemon, resume.Patience{First: time.Minute, Broken: time.Minute, Orphan: time.Minute})
	})
	defer wg.Wait()
	defer over()
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
