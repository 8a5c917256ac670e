package main

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"gorun/launcher"
	"gorun/launcher/register"
	"gorun/launcher/why"
)

// recordLimit is how long a launcher that ends waits for the file system to take a recording.
const recordLimit = 2 * time.Second

// recorder writes recordings of what ranks did last, each in place of the one before. The launcher's loop does not wait
// for it.
type recorder struct {
	dir    string // that the user chose, "" for the job's own
	listed *register.Registration
	next   chan *why.Recording // has room for one
	ended  sync.WaitGroup
}

// recordTo has a job recorded; stop waits for what is still to be written.
func recordTo(spec *launcher.Spec, dir string, listed *register.Registration) (stop func()) {
	r := &recorder{dir: dir, listed: listed, next: make(chan *why.Recording, 1)}
	r.ended.Go(func() {
		for recording := range r.next {
			r.write(recording)
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
func (r *recorder) take(recording *why.Recording) string {
	select {
	case <-r.next:
	default:
	}
	r.next <- recording
	return r.place()
}

// write replaces the file at once, so that readers find a whole recording. What cannot be written is lost: the job does
// not depend on it.
func (r *recorder) write(recording *why.Recording) {
	place := r.place()
	if place == "" {
		return
	}
	f, err := os.OpenFile(place+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	err = recording.Write(f)
	if f.Close() == nil && err == nil {
		err = os.Rename(place+".new", place)
	}
	if err != nil {
		os.Remove(place + ".new")
	}
}
