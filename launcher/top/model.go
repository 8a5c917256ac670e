package top

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gorun/launcher/jobs"
)

const (
	// span is the time for which rates and shares are shown.
	span = 5 * time.Second
	// foldFrom is how many ranks a job has at least whose hosts are folded at first.
	foldFrom = 100
	// maxFilter bounds what the user types.
	maxFilter = 100
)

// Model is what the screen shows, and what keys change. It only decides: the terminal, the clock and the job are its
// caller's. Its methods return a changed copy.
type Model struct {
	label         string // of the job
	width, height int
	samples       []sample // of the last seconds, the oldest first

	by     int // index of the column that rows are sorted by
	filter string
	typing bool // the user types the filter
	folded bool // hosts are, without a filter
	first  int  // row at the top of the screen
	help   bool
	note   string // why nothing newer is known
}

// sample is a state, and when it was known.
type sample struct {
	at    time.Time
	state jobs.State
}

// New returns the model of a job on a screen of 80 columns and 24 lines.
func New(label string) Model { return Model{label: label, width: 80, height: 24} }

// Resize changes the size of the screen.
func (m Model) Resize(width, height int) Model {
	m.width, m.height = width, height
	return m.scrolled()
}

// Take adds what the launcher knows now.
func (m Model) Take(s jobs.State, at time.Time) Model {
	if len(m.samples) == 0 {
		m.folded = len(s.Ranks) >= foldFrom
	}
	m.samples = append(slices.Clone(m.samples), sample{at, s})
	for len(m.samples) > 2 && at.Sub(m.samples[1].at) >= span {
		m.samples = m.samples[1:]
	}
	m.note = ""
	return m.scrolled()
}

// Failed notes that the launcher does not answer.
func (m Model) Failed(err error) Model {
	m.note = err.Error()
	return m
}

// Press changes what a key changes, and reports whether the user leaves. text is what the key writes, if it does.
func (m Model) Press(key, text string) (after Model, leaves bool) {
	switch {
	case key == "ctrl+c":
		return m, true
	case m.typing:
		return m.typed(key, text).scrolled(), false
	case m.help: // any key ends it
		m.help = false
		return m, key == "q"
	}
	switch key {
	case "q":
		return m, true
	case "?":
		m.help = true
	case "/":
		m.typing = true
	case "esc":
		m.filter = ""
	case "<":
		m.by = m.nextColumn(-1)
	case ">":
		m.by = m.nextColumn(1)
	case "space":
		m.folded = !m.folded
	default:
		m.first += m.distance(key)
	}
	return m.scrolled(), false
}

// distance returns how many rows a key moves the screen.
func (m Model) distance(key string) int {
	page, end := max(m.room()-1, 1), len(m.rows())
	return map[string]int{"up": -1, "down": 1, "pgup": -page, "pgdown": page, "home": -end, "end": end}[key]
}

// nextColumn returns the column to sort by, some further.
func (m Model) nextColumn(step int) int {
	for i := m.by; ; {
		if i = (i + step + len(columns)) % len(columns); columns[i].compare != nil {
			return i
		}
	}
}

// typed edits the filter.
func (m Model) typed(key, text string) Model {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		runes := []rune(m.filter)
		m.filter = string(runes[:max(len(runes)-1, 0)])
	case "ctrl+u":
		m.filter = ""
	default:
		for _, r := range text {
			if unicode.IsPrint(r) && len(m.filter) < maxFilter {
				m.filter += string(r)
			}
		}
	}
	return m
}

// folds reports whether hosts are shown without their ranks. Who looks for some sees them.
func (m Model) folds() bool { return m.folded && m.filter == "" }

// scrolled keeps the screen among the rows.
func (m Model) scrolled() Model {
	m.first = max(min(m.first, len(m.rows())-max(m.room(), 1)), 0)
	return m
}

// shows reports whether a rank passes the filter: a number or a range of ranks, or a part of its host or state.
func (m Model) shows(r row) bool {
	if m.filter == "" {
		return true
	}
	if from, to, ok := strings.Cut(m.filter, "-"); ok {
		low, err := strconv.Atoi(from)
		high, bad := strconv.Atoi(to)
		if err == nil && bad == nil {
			return low <= r.rank && r.rank <= high
		}
	}
	if n, err := strconv.Atoi(m.filter); err == nil {
		return r.rank == n
	}
	wanted := strings.ToLower(m.filter)
	return strings.Contains(strings.ToLower(r.host), wanted) || strings.Contains(strings.ToLower(r.state), wanted)
}
