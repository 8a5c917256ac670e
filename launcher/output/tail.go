package output

// Bounds of a tail, in lines and in bytes of one.
const (
	tailLines = 20
	tailLine  = 4 << 10
)

// tail keeps the last lines of a stream for an error report. A line that replaces its predecessor, such as a progress
// bar, does so here too.
type tail struct {
	lines   []string
	replace bool
}

// add takes a line as a Splitter emits it. Very long lines are cut.
func (t *tail) add(line []byte, end End) {
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
	case len(t.lines) == tailLines:
		copy(t.lines, t.lines[1:])
		t.lines[tailLines-1] = text
	default:
		t.lines = append(t.lines, text)
	}
	t.replace = end == CR
}
