package launchers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gorun/launcher/jobs"
)

// background is the goroutine that saves the record of a foreground job.
type background struct {
	changed chan struct{} // has room for one
	ending  chan struct{}
	done    chan struct{}
	lost    error // why the end of the job is not recorded, once done is closed
}

// Begin registers a job that runs in the foreground, if its user has a place for records. The caller must call End.
func Begin(store jobs.Store, record jobs.Record) *Registration {
	machine, _ := os.Hostname() // for people to read
	record.Foreground, record.OutputTo = true, standardOutput()
	record.PID, record.Machine, record.Started = os.Getpid(), machine, time.Now()
	r := newRegistration()
	r.record = record
	r.background = &background{changed: make(chan struct{}, 1), ending: make(chan struct{}), done: make(chan struct{})}
	r.recorder.Keep()
	go r.save(store)
	return r
}

func (b *background) wake() {
	select {
	case b.changed <- struct{}{}:
	default: // it has yet to save an earlier change
	}
}

func (b *background) end() {
	close(b.ending)
	select {
	case <-b.done:
		if b.lost != nil {
			complain("warning", fmt.Errorf("gorun ps cannot show how this job ended: %w", b.lost))
		}
	case <-time.After(endTimeout):
	}
}

// save makes the directory of the job and saves its record whenever it changes, until the job ends.
func (r *Registration) save(store jobs.Store) {
	b := r.background
	defer close(b.done)
	if !owned(store.Dir) {
		return
	}
	job, lock, err := store.Create(r.Record())
	if err != nil { // it is not listed
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			b.lost = err
		}
		return
	}
	defer lock.Close()
	made, err := job.Load()
	if err != nil {
		return
	}
	r.mu.Lock()
	r.record.ID, r.job = made.ID, job
	r.mu.Unlock()
	server, err := job.Serve(r.answer)
	if err == nil { // else it is listed, and cannot be stopped from elsewhere
		defer func() { server.End(r.Record().Code) }()
	}
	for ended := false; !ended; {
		select {
		case <-b.changed:
		case <-b.ending:
			ended = true
		}
		b.lost = job.Save(r.Record()) // a disk that is full now may have room at the next change
	}
	if !r.started() {
		store.Remove(made.ID)
		b.lost = nil
	} else if last := r.Record(); last.Code != 0 {
		job.Leave(&r.recorder, last.Why) // there is nobody to tell that it cannot be kept
	}
}

func (r *Registration) started() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ran
}

// owned reports whether a directory, or else the nearest above it that exists, is the user's own. Otherwise this is
// another user's home, as under sudo, where a file of ours would be in the way. Nothing is made below the root.
func owned(dir string) bool {
	for ; filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil {
			stat, ok := info.Sys().(*syscall.Stat_t)
			return ok && int(stat.Uid) == os.Geteuid()
		}
	}
	return false
}

// standardOutput names what standard output is, "" if it has no name.
func standardOutput() string {
	name, err := os.Readlink("/proc/self/fd/1")
	if err != nil || !strings.HasPrefix(name, "/") {
		return ""
	}
	return name
}
