package jobs

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

const (
	// keptLines is how many lines of output a launcher keeps for those who look, and maxLine how long each may be, in bytes.
	keptLines = 2000
	maxLine   = 1 << 10
	// endOfRank is how much of each rank's output a failed job leaves behind, endsOfAll how much of all ranks', and longest
	// how much of a line.
	endOfRank = 1 << 20
	endsOfAll = 64 << 20
	longest   = 64 << 10
	// maxAnswer is how many lines an answer has at most.
	maxAnswer = 500
)

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

	keeps bool
	ends  map[int]*end // by rank
}

// end is the end of a rank's output.
type end struct {
	lines []numbered
	size  int
}

type numbered struct {
	Line
	number int64
}

type part struct {
	rank int
	err  bool
}

// Keep has the Recorder keep what Leave writes.
func (r *Recorder) Keep() { r.keeps = true }

// Write takes what a rank wrote. Of a long line it keeps the beginning, and of one that is replaced by carriage returns
// the last version.
func (r *Recorder) Write(rank int, err bool, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts == nil {
		r.parts = map[part]string{}
	}
	of := part{rank, err}
	if len(r.parts[of]) >= longest && !bytes.ContainsAny(data, "\r\n") {
		return
	}
	for line := range strings.Lines(string(data)) {
		text, ends := strings.CutSuffix(line, "\n")
		text = r.parts[of] + text
		text = text[strings.LastIndexByte(strings.TrimRight(text, "\r"), '\r')+1:]
		text = strings.Clone(text[:min(len(text), longest)]) // not a part of data
		if !ends {
			r.parts[of] = text
			return
		}
		delete(r.parts, of)
		r.add(Line{rank, err, strings.TrimRight(text, "\r")})
	}
}

func (r *Recorder) add(l Line) {
	if r.keeps {
		r.keep(l)
	}
	if len(l.Text) > maxLine {
		l.Text = strings.Clone(l.Text[:maxLine])
	}
	if len(r.lines) < keptLines {
		r.lines = append(r.lines, l)
	} else {
		r.lines[r.written%keptLines] = l
	}
	r.written++
}

func (r *Recorder) keep(l Line) {
	if r.ends == nil {
		r.ends = map[int]*end{}
	}
	if r.ends[l.Rank] == nil {
		r.ends[l.Rank] = &end{}
		for _, e := range r.ends { // there is less for each
			e.trim(endsOfAll / len(r.ends))
		}
	}
	e := r.ends[l.Rank]
	e.lines = append(e.lines, numbered{l, r.written})
	e.size += cost(l)
	e.trim(min(endOfRank, endsOfAll/len(r.ends)))
}

// trim drops the oldest lines beyond a size.
func (e *end) trim(size int) {
	for e.size > size && len(e.lines) > 0 {
		e.size -= cost(e.lines[0].Line)
		e.lines[0] = numbered{}
		e.lines = e.lines[1:]
	}
}

// cost is what keeping a line takes.
func cost(l Line) int { return len(l.Text) + 64 }

// Leave writes the ends of the ranks' output, in the order of the lines, and why the job failed, where Tail reads them.
func (j Job) Leave(r *Recorder, why string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, text := range r.parts {
		r.add(Line{of.rank, of.err, strings.TrimRight(text, "\r")})
	}
	clear(r.parts)
	var all []numbered
	for _, e := range r.ends {
		all = append(all, e.lines...)
	}
	slices.SortFunc(all, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	var b bytes.Buffer
	for _, l := range all {
		fmt.Fprintf(&b, "[%d]<%s>:%s\n", l.Rank, map[bool]string{false: "stdout", true: "stderr"}[l.Error], l.Text)
	}
	if why != "" {
		fmt.Fprintf(&b, "gorun: error: %s\n", why)
	}
	if err := os.WriteFile(j.Output(), b.Bytes(), 0o600); err != nil {
		os.Remove(j.Output())
		return fmt.Errorf("keep output: %w", err)
	}
	return nil
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
