package jobs

import (
	"context"
	"strings"
	"sync"
	"time"
)

const (
	// keptLines is how many lines of output a launcher keeps for those who look, and maxLine how long each may be, in bytes.
	keptLines = 2000
	maxLine   = 1 << 10
	// maxAnswer is how many lines an answer has at most.
	maxAnswer = 500
)

// Event is something that happened to a job.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // stall, move or moved
	Text string    `json:"text"`
}

// Line is a line that a rank wrote.
type Line struct {
	Rank  int    `json:"rank"`
	Error bool   `json:"error,omitempty"` // to standard error
	Text  string `json:"text"`
}

// Lines are the lines from number Next-len(Lines) on. Next is what to ask for next.
type Lines struct {
	Next  int64  `json:"next"`
	Lines []Line `json:"lines"`
}

// Recorder keeps the last lines that the ranks of a job wrote. Any goroutine may use it.
type Recorder struct {
	mu      sync.Mutex
	lines   []Line // a ring, once it is full
	written int64
	parts   map[part]string // of unfinished lines
}

type part struct {
	rank int
	err  bool
}

// Write takes what a rank wrote. Of a long line it keeps the beginning.
func (r *Recorder) Write(rank int, err bool, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts == nil {
		r.parts = map[part]string{}
	}
	of := part{rank, err}
	for line := range strings.Lines(string(data)) {
		text, ends := strings.CutSuffix(line, "\n")
		text = strings.Clone(r.parts[of] + text[:min(len(text), max(maxLine-len(r.parts[of]), 0))]) // not a part of data
		if !ends {
			r.parts[of] = text
			return
		}
		delete(r.parts, of)
		r.add(Line{rank, err, strings.TrimSuffix(text, "\r")})
	}
}

func (r *Recorder) add(l Line) {
	if len(r.lines) < keptLines {
		r.lines = append(r.lines, l)
	} else {
		r.lines[r.written%keptLines] = l
	}
	r.written++
}

// After returns the lines from a number on: if there are many, the oldest of them. For a negative number it returns the
// latest lines.
func (r *Recorder) After(after int64) Lines {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := max(after, r.written-int64(len(r.lines)), 0)
	if after < 0 || after > r.written { // of an earlier launcher
		from = max(r.written-maxAnswer, r.written-int64(len(r.lines)), 0)
	}
	out := Lines{Next: min(from+maxAnswer, r.written), Lines: []Line{}}
	for n := from; n < out.Next; n++ {
		l := r.lines[n%keptLines]
		l.Text = Clean(strings.ToValidUTF8(l.Text, "�"))
		out.Lines = append(out.Lines, l)
	}
	return out
}

// Lines returns what ranks wrote, from a number on.
func (j Job) Lines(ctx context.Context, after int64) (Lines, error) {
	a, err := j.askNow(ctx, request{Do: "output", After: after})
	if err != nil || a.Lines == nil {
		return Lines{Lines: []Line{}}, err
	}
	return *a.Lines, nil
}
