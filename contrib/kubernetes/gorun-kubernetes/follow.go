package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	core "k8s.io/api/core/v1"
)

const (
	// again is how long to wait before a log is opened once more.
	again = 500 * time.Millisecond
	// lastTries is how often the log of a container that has ended is opened in vain.
	lastTries = 20
)

// unwritten is an error of the output, which opening the log again does not mend.
type unwritten struct{ error }

func (u *unwritten) Unwrap() error { return u.error }

// logReader copies the log of a container, each line once, however often it is opened.
type logReader struct {
	to   io.Writer
	last time.Time // of the lines so far
	same int       // how many of them have that time

	again time.Duration // until the log is opened once more
}

// follow copies a pod's log until its container has ended and all of its lines are there, or the pod is gone. note is called
// when the log cannot be read for now.
func (l *logReader) follow(ctx context.Context, c *client, name string, note func(error)) error {
	for tries := lastTries; ; {
		var p core.Pod
		err := c.call(ctx, "GET", c.address(podPath, name, nil), nil, &p)
		if refused(err) == http.StatusNotFound {
			return nil
		}
		over := err == nil && ended(&p) != nil // checked before the log is opened, so that it has all
		if err == nil {
			err = l.open(ctx, c, name)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && over:
			return nil
		case refused(err) == http.StatusForbidden || refused(err) == http.StatusUnauthorized || isUnwritten(err):
			return err
		case err != nil:
			note(err)
		}
		if over { // the node that keeps the log may be gone
			if tries--; tries == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(l.again):
		}
	}
}

func isUnwritten(err error) bool {
	_, is := errors.AsType[*unwritten](err)
	return is
}

// open copies what the log has after the lines so far, until its end.
func (l *logReader) open(ctx context.Context, c *client, name string) error {
	query := url.Values{"container": {launcherPart}, "follow": {"true"}, "timestamps": {"true"}}
	if !l.last.IsZero() {
		query.Set("sinceTime", l.last.UTC().Format(time.RFC3339))
	}
	body, err := c.request(ctx, "GET", c.address(podPath, name+"/log", query), nil)
	if refused(err) == http.StatusNotFound { // gone meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer body.Close()
	return l.copy(body)
}

// copy writes the lines that are new. Each begins with its time.
func (l *logReader) copy(from io.Reader) error {
	r := bufio.NewReaderSize(from, 64<<10)
	known := l.same // lines of the last time that come again
	for begins, wanted := true, false; ; {
		piece, err := r.ReadSlice('\n')
		if len(piece) > 0 {
			if begins {
				stamp, rest, found := bytes.Cut(piece, []byte(" "))
				at, wrong := time.Parse(time.RFC3339Nano, string(stamp))
				if !found || wrong != nil {
					rest, at = piece, l.last.Add(1) // no line of a log: a message of the node
				}
				wanted, piece = l.isNew(at, &known), rest
			}
			if wanted {
				if _, err := l.to.Write(piece); err != nil {
					return &unwritten{fmt.Errorf("write output: %w", err)}
				}
			}
			begins = err == nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("read log: %w", err)
		}
	}
}

// isNew reports whether a line of some time has not been copied yet. known is how many copied lines of the last time
// may still come again.
func (l *logReader) isNew(at time.Time, known *int) bool {
	switch {
	case at.Before(l.last):
		return false
	case at.After(l.last):
		l.last, l.same, *known = at, 1, 0
		return true
	case *known > 0:
		*known--
		return false
	}
	l.same++
	return true
}
