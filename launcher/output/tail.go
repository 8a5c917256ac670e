package output

// Bounds of a Tail.
const (
	DefaultTail = 20
	tailLine    = 4 << 10
)

// Tail keeps the last lines of a stream for an error report. A line that replaces its predecessor, such as a progress
// bar, does so here too.
type Tail struct {
	max     int
	lines   []string
	replace bool
}

// NewTail returns a Tail of at most n lines.
func NewTail(n int) *Tail { return &Tail{max: max(n, 1)} }

// Add takes a line as a Splitter emits it. Very long lines are cut.
func (t *Tail) Add(line []byte, end End) {
	if end == CR && len(line) == 0 {
		return // before the first version of a progress bar
	}
	text := string(line)
	if len(line) > tailLine {
		text = string(line[:wholeRunes(line[:tailLine])]) + "…"
	}
	switch {
	case t.replace && len(t.lines) > 0:
		t.lines[len(t.lines)-1] = text
	case len(t.lines) == t.max:
		copy(t.lines, t.lines[1:])
		t.lines[t.max-1] = text
	default:
		t.lines = append(t.lines, text)
	}
	t.replace = end == CR
}

// Lines returns the lines, oldest first.
func (t *Tail) Lines() []string { return append([]string(nil), t.lines...) }
