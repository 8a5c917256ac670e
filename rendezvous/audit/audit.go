// Package audit keeps the log of what a resident daemon was asked to do, and of what became of it: one JSON object a line.
//
// A Log has a goroutine, which writes; nothing that a daemon does waits for a file system. A file that is moved away, as
// logrotate does, is made anew by the next entry, without a signal. A file of maxSize becomes FILE.1, in the place of the one before.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// maxSize bounds a file, in bytes, to one entry. Strangers add an entry a minute for each of their addresses.
	maxSize = 16 << 20
	// maxText bounds each text of an entry, in bytes. Texts come from launchers.
	maxText = 1 << 10
	// waiting is how many entries may wait for the file system. More are lost, and counted.
	waiting = 1 << 10
	// closeTimeout is how long Close waits for the file system.
	closeTimeout = 2 * time.Second
)

// Results of entries.
const (
	Done    = "done"
	Refused = "refused"
	Failed  = "failed"
)

// Entry is what happened. Log adds the time and who keeps it.
type Entry struct {
	Time   time.Time `json:"time"`
	Daemon string    `json:"daemon"`          // name of the daemon's host
	What   string    `json:"what"`            // see docs/guides/clusters.md
	From   string    `json:"from,omitempty"`  // address of who asks, as the kernel saw it, or of another daemon
	Key    string    `json:"key,omitempty"`   // fingerprint of the key that From has proven to hold
	Host   string    `json:"host,omitempty"`  // another one
	Job    string    `json:"job,omitempty"`   // session of the job's daemon, or number of a detached job
	Slots  int       `json:"slots,omitempty"` // on this host
	Claims *Claims   `json:"claims,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Result string    `json:"result"`
	Why    string    `json:"why,omitempty"` // it was refused, or failed
}

// Claims is what a launcher says of its job. Nothing proves it.
type Claims struct {
	User    string `json:"user,omitempty"`
	Program string `json:"program,omitempty"` // in a few words
	Ranks   int    `json:"ranks,omitempty"`
}

// Log writes entries into a file. Its methods do nothing on nil.
type Log struct {
	path, daemon string
	warn         func(error)
	entries      chan Entry
	done         chan struct{}

	mu     sync.Mutex
	closed bool
	lost   int

	file   *os.File // of the goroutine alone
	warned time.Time
}

// Open opens the log of a daemon. Each failure that follows is given to warn, at most one a minute.
func Open(path, daemon string, warn func(error)) (*Log, error) {
	l := &Log{path: path, daemon: daemon, warn: warn, entries: make(chan Entry, waiting), done: make(chan struct{})}
	if err := l.open(); err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

// Write adds an entry. It does not wait.
func (l *Log) Write(e Entry) {
	if l == nil {
		return
	}
	if e.Result == "" {
		e.Result = Done
	}
	e.Time, e.Daemon = time.Now().UTC(), l.daemon
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	select {
	case l.entries <- e:
	default:
		l.lost++
	}
}

// Close writes the entries that wait, if the file system takes them soon.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.entries)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(closeTimeout):
	}
}

func (l *Log) run() {
	defer close(l.done)
	for e := range l.entries {
		l.write(e)
		l.mu.Lock()
		lost := l.lost
		l.lost = 0
		l.mu.Unlock()
		if lost > 0 {
			e = Entry{Time: time.Now().UTC(), Daemon: l.daemon, What: "log", Result: Failed, Why: fmt.Sprintf("%d entries were lost: the file system was too slow", lost)}
			l.write(e)
		}
	}
	if l.file != nil {
		l.file.Close()
	}
}

func (l *Log) write(e Entry) {
	err := l.reopen()
	if err == nil {
		err = json.NewEncoder(l.file).Encode(e.bounded())
	}
	if err != nil && time.Since(l.warned) > time.Minute {
		l.warned = time.Now()
		l.warn(fmt.Errorf("write audit log: %w", err))
	}
}

// reopen opens the file again if it has been moved away, and moves it away if it is full.
func (l *Log) reopen() error {
	if l.file != nil {
		mine, err := l.file.Stat()
		if err != nil {
			return err
		}
		if there, err := os.Lstat(l.path); err == nil && os.SameFile(mine, there) {
			if mine.Size() < maxSize || os.Rename(l.path, l.path+".1") != nil { // a log too large is better than none
				return nil
			}
		}
		l.file.Close()
		l.file = nil
	}
	return l.open()
}

// open opens the file for its user alone.
func (l *Log) open() error {
	fail := func(err error) error { return fmt.Errorf("open audit log: %w", err) }
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return fail(err)
	}
	// A pipe without a reader must not stop the daemon; it is refused below.
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fail(err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = &fs.PathError{Op: "open", Path: l.path, Err: errors.New("not a regular file")}
	case info.Mode().Perm()&0o077 != 0:
		err = file.Chmod(0o600)
	}
	if err != nil {
		file.Close()
		return fail(err)
	}
	l.file = file
	return nil
}

// bounded returns the entry with texts of bounded length, none of which moves a terminal's cursor.
func (e Entry) bounded() Entry {
	if e.Claims != nil {
		e.Claims = &Claims{User: bounded(e.Claims.User), Program: bounded(e.Claims.Program), Ranks: e.Claims.Ranks}
	}
	for _, text := range []*string{&e.Daemon, &e.What, &e.From, &e.Host, &e.Job, &e.Detail, &e.Why} {
		*text = bounded(*text)
	}
	return e
}

// bounded maps what is not printed first: a replacement has three bytes.
func bounded(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
