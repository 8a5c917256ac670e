package ssh

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

// Programs in place of the built-in client pass the same gate: each counts as one handshake from its start until the
// host has sent something, and one that an overloaded sshd dropped is restarted after a random pause. How long one may
// take is up to the user (ConnectTimeout) and to the caller: the gate does not wait for hung ones.

// start runs a session.
func (e external) start(ctx context.Context, command string) (*Session, error) {
	wait := e.client.retry.first
	for n := 1; ; n++ {
		p, err := e.client.gate.enter(ctx, e.door)
		if err != nil {
			return nil, fmt.Errorf("wait for other connections to %s: %w", e.server, err)
		}
		s, dropped, err := e.login(command)
		if !dropped || n == e.client.retry.attempts || e.ctx.Err() != nil {
			p.done(e.door)
			return s, err
		}
		p.dropped()
		e.client.cfg.Log.Debug("ssh connection dropped, trying again", "host", e.server, "attempt", n)
		s.wait() // its output ended
		select {
		case <-time.After(rand.N(wait)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		wait = min(2*wait, e.client.retry.max)
	}
}

// login starts the program and waits for its first output or its end. The session still delivers all output.
func (e external) login(command string) (s *Session, dropped bool, err error) {
	s, err = e.run(command)
	if err != nil {
		return nil, false, err
	}
	first := make([]byte, 1)
	n, _ := io.ReadFull(s.Stdout, first)
	if n == 1 {
		s.Stdout = io.MultiReader(bytes.NewReader(first), s.Stdout)
		return s, false, nil
	}
	defer time.AfterFunc(outcomeLimit, e.cancel).Stop() // it may keep running with its output closed
	said, _ := io.ReadAll(io.LimitReader(s.Stderr, maxTail))
	s.Stdout, s.Stderr = bytes.NewReader(nil), bytes.NewReader(said)
	return s, wasDropped(string(said)) && decisive(string(said)) == "", nil
}

// wasDropped recognizes OpenSSH's messages for a server that hung up before it showed a key.
func wasDropped(said string) bool {
	return strings.Contains(said, "kex_exchange_identification: ") || strings.Contains(said, "ssh_exchange_identification: ")
}
