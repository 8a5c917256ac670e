package discover

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"gorun/topology"
	"gorun/topology/facts"
)

// lookInterval is how often Facts looks at its file. It reads a file that looks the same twice: before, an editor may
// be writing it.
const lookInterval = time.Second

// Facts is a topology file whose content may change while a job runs.
type Facts struct {
	File     string
	Text     []byte // what the hosts of the job have
	Measured []byte // edges measured before the job, which Text ends with; nil for none
	Hosts    []topology.Host
}

// ReadFacts reads no more of a topology file than it takes to see that the file is too long.
func ReadFacts(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, facts.MaxFile+1))
}

// Watches reports whether the file is one that can change: a pipe has its content once.
func (f Facts) Watches() bool {
	info, err := os.Stat(f.File)
	return f.File != "" && err == nil && info.Mode().IsRegular()
}

// Watch reads the file whenever it has changed until ctx ends, and delivers what the hosts should have. A file with a
// mistake is noted once and changes nothing.
func (f Facts) Watch(ctx context.Context, changed func(text []byte), note func(format string, args ...any)) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	r := reader{Facts: f}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		text, message := r.look()
		if message != "" {
			note("gorun: %s", message)
		}
		if text != nil {
			changed(text)
		}
	}
}

// reader remembers what the file was like.
type reader struct {
	Facts
	seen string // size and time of the file at the last look
	read string // and when it was read
}

// look returns what the hosts should have, nil if nothing changes, and a message for the user, which may be empty.
func (r *reader) look() (text []byte, message string) {
	state := "gone"
	if info, err := os.Stat(r.File); err == nil {
		state = fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	}
	settled := state == r.seen
	if r.seen = state; !settled || state == r.read {
		return nil, ""
	}
	r.read = state
	text, err := ReadFacts(r.File)
	if err != nil {
		return nil, fmt.Sprintf("warning: read topology file: %v; its previous content still counts", err)
	}
	file, err := facts.Parse(text)
	if err != nil {
		return nil, fmt.Sprintf("warning: %s: %v; its previous content still counts", r.File, err)
	}
	if len(file.Edges(r.Hosts)) == 0 {
		text = slices.Concat(text, r.Measured)
		if _, err := facts.Parse(text); err != nil { // it has edges of other hosts
			text = text[:len(text)-len(r.Measured)]
		}
	}
	if bytes.Equal(text, r.Text) {
		return nil, ""
	}
	r.Text = text
	return text, r.File + " has changed: its content counts from now on"
}
