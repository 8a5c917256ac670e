package main

import (
	"bytes"
	"path/filepath"
	"sync"
	"time"

	"gorun/launcher"
	"gorun/launcher/jobs"
	"gorun/launcher/launchers"
	"gorun/launcher/why"
)

// recordLimit is how long a launcher that ends waits for the file system to take a recording.
const recordLimit = 2 * time.Second

// recorder writes recordings of what ranks did last, each in place of the one before. The launcher's loop does not wait
// for it.
type recorder struct {
	dir    string // that the user chose, "" for the job's own
	listed *launchers.Registration
	next   chan *why.Recording // has room for one
	ended  sync.WaitGroup

	note          func(format string, args ...any)
	named, warned bool // the user knows where recordings are, or that there are none
}

// recordTo keeps the recordings of a job in a file. stop waits, for recordLimit at most, until the last one is written.
func recordTo(spec *launcher.Spec, dir string, listed *launchers.Registration) (stop func()) {
	r := &recorder{dir: dir, listed: listed, next: make(chan *why.Recording, 1), note: spec.Note}
	r.ended.Go(func() {
		for recording := range r.next {
			r.keep(recording)
		}
	})
	spec.Record = r.take
	return func() {
		close(r.next)
		done := make(chan struct{})
		go func() { r.ended.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(recordLimit):
		}
	}
}

func (r *recorder) place() string {
	if r.dir != "" {
		return filepath.Join(r.dir, "flight.jsonl")
	}
	return r.listed.Recording()
}

// take puts a recording in place of one that is still to be written.
func (r *recorder) take(recording *why.Recording) {
	select {
	case <-r.next:
	default:
	}
	r.next <- recording
}

// keep writes a recording, and notes once where it is, or why there is none: the job does not depend on it.
func (r *recorder) keep(recording *why.Recording) {
	place := r.place()
	if place == "" {
		return
	}
	var text bytes.Buffer
	err := recording.Write(&text)
	if err == nil {
		err = jobs.Replace(place, text.Bytes())
	}
	switch {
	case err == nil && !r.named:
		r.named = true
		r.note("gorun: the last operations of the ranks are in %s: gorun why %[1]s explains them", place)
	case err != nil && !r.warned:
		r.warned = true
		r.note("gorun: what the ranks did last could not be recorded: %v", err)
	}
}
