package ssh

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Login shells read files of the user's before they run a command, and those may keep it from gorun: they read the standard input that is
// meant for it, send its output elsewhere, exit, or start another shell. A host that is slow lets a command wait, too. So when a command
// has said nothing for a while, gorun runs another one beside it, which has no input: how that ends shows the cause.

const (
	// quietLogin is how long a command may say nothing until another one is tried.
	quietLogin = 5 * time.Second
	// ranStatus is the exit status of that one.
	ranStatus = 42

	loginHint = "let ~/.bashrc, or what the login shell reads in its place, begin with: case $- in *i*) ;; *) return ;; esac"
	exitHint  = "if that was a login file, let ~/.bashrc, say, begin with: case $- in *i*) ;; *) return ;; esac"
)

var (
	errReadsInput  = errors.New("a login file of the host, such as ~/.bashrc, reads the standard input that is meant for gorun")
	errHidesOutput = errors.New("a login file of the host, such as ~/.bashrc, hides what commands write")
	errLeaves      = errors.New("a login file of the host, such as ~/.bashrc, or what takes the login shell's place, exits or starts another program")
)

// unbegun adds what may be the cause that a command ended before our script began, or that its output is hidden, unless the host
// has said why.
func (e *Error) unbegun(code int, unknown error) {
	var mute cut
	switch {
	case errors.As(e.Err, &mute):
		e.Err = errHidesOutput
	case unknown != nil:
		return
	case e.Err.Error() == withoutWord(code):
		e.Err = fmt.Errorf("%w: %w", e.Err, errLeaves)
	}
	e.Hint = cmp.Or(e.Hint, exitHint)
}

func withoutWord(code int) string { return fmt.Sprintf("exit code %d without a word", code) }

// doubt finds out why the first marker does not come, unless it has come by then, and closes the connection if it knows.
func (c *Conn) doubt(came <-chan struct{}) {
	wait := func() (in bool) {
		timer := time.NewTimer(c.client.quietLogin)
		defer timer.Stop()
		select {
		case <-came:
			return false
		case <-timer.C:
			return true
		}
	}
	for wait() {
		why := c.tryCommand(came)
		if why == nil {
			continue
		}
		if wait() { // it might have been about to come
			c.condemn(&Error{Host: c.host, Step: StepStart, Err: why, Hint: loginHint})
		}
		return
	}
}

// tryCommand runs a command without input, and returns what that says of the login files; nil if it says nothing.
func (c *Conn) tryCommand(came <-chan struct{}) error {
	nonce := newNonce()
	s, err := c.transport.start(context.Background(), fmt.Sprintf(`exec /bin/sh -c 'echo; echo "%s %s HERE"; exit %d'`, marker, nonce, ranStatus))
	if err != nil {
		return nil
	}
	type outcome struct {
		code    int
		visible bool
		err     error
	}
	result := make(chan outcome, 1)
	c.client.running.Go(func() { io.Copy(io.Discard, s.Stderr) })
	c.client.running.Go(func() { // both end with the connection at the latest
		s.Stdin.Close()
		_, _, hidden := nextMarker(bufio.NewReader(s.Stdout), nonce)
		io.Copy(io.Discard, s.Stdout)
		code, err := s.wait()
		result <- outcome{code, hidden == nil, err}
	})
	select {
	case <-came:
		return nil
	case o := <-result: // of one command, however long it takes: sshd bounds their number
		switch {
		case o.err != nil:
			return nil
		case o.visible:
			return errReadsInput
		case o.code == ranStatus:
			return errHidesOutput
		}
		return errLeaves
	}
}
