package ssh

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"
)

// Programs in place of the built-in client pass the same gate: each counts as one handshake from its start until the
// host has sent something, and one that an overloaded sshd dropped is restarted after a random pause. How long one may
// take is up to the user (ConnectTimeout) and to the caller: the gate does not wait for hung ones.

// start runs a session.
func (e external) start(ctx context.Context, command string) (s *Session, err error) {
	p, err := e.client.attempts(ctx, e.door, e.server, func() (dropped bool, err error) {
		if s != nil {
			s.wait() // the output of the last try has ended
		}
		s, dropped, err = e.login(command)
		return dropped && e.ctx.Err() == nil, err
	})
	if p != nil {
		p.done()
	}
	if err != nil && s != nil { // no other try came
		s.wait()
		s = nil
	}
	return s, err
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
