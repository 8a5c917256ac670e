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

// Login shells read the user's files before they run a command, and those may get in the way: read the standard input
// meant for the command, redirect its output, exit, or start another shell. A slow host delays a command, too. So when
// a command has printed nothing for a while, gorun runs another one beside it without input, whose result shows the
// cause.

const (
	// quietLogin is how long a command may print nothing before another one is tried.
	quietLogin = 5 * time.Second
	// ranStatus is the exit status of the second command.
	ranStatus = 42

	loginHint = "let ~/.bashrc, or what the login shell reads in its place, begin with: case $- in *i*) ;; *) return ;; esac"
	exitHint  = "if that was a login file, let ~/.bashrc, say, begin with: case $- in *i*) ;; *) return ;; esac"
)

var (
	errReadsInput  = errors.New("a login file of the host, such as ~/.bashrc, reads the standard input that is meant for gorun")
	errHidesOutput = errors.New("a login file of the host, such as ~/.bashrc, hides what commands write")
	errLeaves      = errors.New("a login file of the host, such as ~/.bashrc, or what takes the login shell's place, exits or starts another program")
)

// explainNoStart adds the likely cause for a command that ended before our script began, or whose output is hidden,
// unless the host has reported one.
func explainNoStart(e *Error, code int, unknown error) {
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

// diagnose finds out why the first marker is missing, unless it arrives meanwhile, and closes the connection if it
// knows.
func (c *Conn) diagnose(came <-chan struct{}) {
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
			c.closeWith(&Error{Host: c.host, Step: StepStart, Err: why, Hint: loginHint})
		}
		return
	}
}

// tryCommand runs a command without input, and returns what the result reveals about the login files; nil if nothing.
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
	case o := <-result: // one command, however long it takes: sshd bounds their number
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
