package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/charmbracelet/x/ansi"

	"gorun/launcher/jobs"
	"gorun/topology"
)

// Styles of the terminal. The text has all that they show.
const (
	plain    = "\x1b[m"
	bold     = "\x1b[1m"
	inverted = "\x1b[7m"
	alarming = "\x1b[1;31m"
)

// partStyles and partSigns draw computing, data, communication and others in a bar.
var (
	partStyles = [4]string{"\x1b[34m", "\x1b[33m", "\x1b[32m", "\x1b[35m"}
	partSigns  = [4]string{"█", "▓", "▒", "░"}
)

const (
	barWidth  = 20
	nameShare = 5 // one of so many columns of the screen is the first one's
)

// column is a column of the table. Rows can be sorted by it if it has compare.
type column struct {
	title   string
	width   int // with the space before it
	from    int // columns of the screen from which on it leaves room for the state
	text    func(r row) string
	ofHosts bool // a picture, or about hosts, which Table leaves out
	compare func(a, b row) int
}

// byRank is the index of the first column.
const byRank = 0

// columns lie between the name of a row and its state.
var columns = []column{
	{title: "RANK", compare: func(a, b row) int { return cmp.Compare(a.rank, b.rank) }},
	{title: "PID", width: 9, from: 140, text: func(r row) string { return number(r.pid) }},
	{title: "CPU", width: 7, text: cpuText, compare: descending(func(r row) float64 { return r.cpu })},
	{title: "MEMORY", width: 9, text: memoryText, compare: descending(func(r row) float64 { return float64(r.rss) })},
	{title: "PROCS", width: 7, from: 160, text: func(r row) string { return number(r.processes) }},
	{title: "STEP", width: 8, text: stepText, compare: descending(func(r row) float64 { return float64(r.step) })},
	partColumn("COMP", 6, 0), partColumn("DATA", 6, 1), partColumn("COMM", 6, 2), partColumn("OTHERS", 8, 3),
	{title: "WHERE THE TIME GOES", width: barWidth + 2, from: 130, text: bar, ofHosts: true},
	{title: "SENDS", width: 12, from: 150, text: sendsText, ofHosts: true, compare: descending(func(r row) float64 { return r.sends })},
}

func descending(of func(r row) float64) func(a, b row) int {
	return func(a, b row) int { return cmp.Compare(of(b), of(a)) }
}

func partColumn(title string, width, part int) column {
	of := func(r row) float64 {
		if r.shares == nil {
			return -1
		}
		return r.shares[part]
	}
	return column{title: title, width: width, compare: descending(of), text: func(r row) string {
		if r.shares == nil {
			return "-"
		}
		return fmt.Sprintf("%.0f%%", 100*of(r))
	}}
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func cpuText(r row) string {
	if r.cpu < 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*r.cpu)
}

func memoryText(r row) string {
	if r.rss >= 10<<30 {
		return fmt.Sprintf("%d GiB", r.rss>>30)
	}
	return fmt.Sprintf("%d MiB", r.rss>>20)
}

func stepText(r row) string {
	if r.step == 0 {
		return "-"
	}
	return duration(r.step)
}

func sendsText(r row) string {
	if r.rank >= 0 {
		return ""
	}
	return bytes(r.sends) + "/s"
}

func bar(r row) string {
	if r.shares == nil {
		return ""
	}
	var b strings.Builder
	from, sum := 0, 0.0
	for i, share := range r.shares {
		sum += share
		to := min(int(sum*barWidth+0.5), barWidth)
		if to > from {
			b.WriteString(partStyles[i] + strings.Repeat(partSigns[i], to-from) + plain)
			from = to
		}
	}
	return b.String()
}

// Table returns what the ranks of a job did between two looks, a line for each.
func Table(label string, before, now jobs.State) string {
	text := fmt.Sprintf("job %s, %s, since %s\n", label, jobs.Clean(now.Record.Program), now.Record.Started.Local().Format(time.DateTime))
	ofRanks := slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.text == nil || c.ofHosts })
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "RANK\tHOST")
	for _, c := range ofRanks {
		fmt.Fprint(w, "\t", c.title)
	}
	fmt.Fprintln(w, "\tSTATE")
	all := ranks(sample{state: now}, sample{state: before})
	slices.SortStableFunc(all, columns[byRank].compare)
	for _, r := range all {
		fmt.Fprintf(w, "%d\t%s", r.rank, jobs.Clean(r.host))
		for _, c := range ofRanks {
			fmt.Fprint(w, "\t", c.text(r))
		}
		fmt.Fprintf(w, "\t%s\n", jobs.Clean(r.state))
	}
	w.Flush()
	return text + b.String()
}

// Frame returns the screen: as many lines as it has, none wider than it is.
func (m Model) Frame() string {
	lines := m.lines()
	lines = lines[:max(min(len(lines), m.height), 0)]
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, max(m.width, 0), "…")
	}
	return strings.Join(lines, "\n")
}

func (m Model) lines() []string {
	if m.help {
		return strings.Split(strings.TrimSuffix(keys, "\n"), "\n")
	}
	lines := m.head()
	rows := m.rows()
	room := m.room()
	last := min(m.first+room, len(rows))
	for i := m.first; i < last; i++ {
		lines = append(lines, m.line(rows[i]))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return append(lines, m.foot(len(rows), last))
}

// room returns how many rows fit.
func (m Model) room() int { return m.height - len(m.head()) - 1 }

// head returns the lines above the rows.
func (m Model) head() []string {
	now, before := m.latest()
	record := now.state.Record
	about := fmt.Sprintf("%s on %s, %s", topology.Count(record.Ranks, "rank"), topology.Count(len(record.Hosts), "host"), clock(now.at.Sub(record.Started)))
	if epoch := now.state.Epoch(); epoch > 1 {
		about = fmt.Sprintf("epoch %d, ", epoch) + about
	}
	if len(m.samples) == 0 {
		about = "asks the launcher"
	}
	program := cut(jobs.Clean("job "+m.label+"  "+record.Program), m.width-ansi.StringWidth(about)-2)
	gap := max(m.width-ansi.StringWidth(program)-ansi.StringWidth(about), 1)
	lines := []string{bold + program + plain + strings.Repeat(" ", gap) + about, figures(now, before)}
	return append(append(lines, m.ringLines()...), m.titles())
}

// figures returns the line about all ranks.
func figures(now, before sample) string {
	var text []string
	var parts []*shares
	longest := int64(0)
	for _, r := range ranks(now, before) {
		longest, parts = max(longest, r.step), append(parts, r.shares)
	}
	seconds := now.at.Sub(before.at).Seconds()
	if longest > 0 {
		text = append(text, "step "+duration(longest))
	}
	if steps, was := now.steps(), before.steps(); was > 0 && seconds > 0 && steps >= was {
		text = append(text, fmt.Sprintf("%.3g steps/s", float64(steps-was)/seconds))
	}
	if sent, was := now.sent(), before.sent(); seconds > 0 && sent >= was && len(now.state.Hosts) > 1 {
		text = append(text, "sends "+bytes(float64(sent-was)/seconds)+"/s")
	}
	if of := mean(parts); of != nil {
		for i, name := range []string{"comp", "data", "comm", "others"} {
			text = append(text, fmt.Sprintf("%s %.0f%%", name, 100*of[i]))
		}
	} else if len(now.state.Ranks) > 0 {
		text = append(text, "the ranks count no steps")
	}
	return strings.Join(text, "  ")
}

// ringLines draws the ring over hosts, with what each sends, and names the edge that sets the pace. Frame cuts what is too long.
func (m Model) ringLines() []string {
	ring, slowest := m.ring()
	if len(ring) < 2 {
		return nil
	}
	line := "ring  "
	for i, e := range ring {
		arrow := fmt.Sprintf(" ─ %s/s → ", bytes(e.rate))
		if i == slowest {
			arrow = fmt.Sprintf(" %s━ %s/s ⇒%s ", alarming, bytes(e.rate), plain)
		}
		line += jobs.Clean(e.from) + arrow
	}
	lines := []string{line + jobs.Clean(ring[len(ring)-1].to)}
	if slowest >= 0 {
		lines = append(lines, alarming+pace(ring[slowest])+plain)
	}
	return lines
}

// shown returns whether there is room for a column.
func (m Model) shown(c column) bool { return c.width > 0 && m.width >= c.from }

func (m Model) nameWidth() int { return m.width / nameShare }

// titles returns the line above the rows; an arrow is at the column that rows are sorted by.
func (m Model) titles() string {
	mark := func(i int, title string) string {
		switch {
		case i != m.by:
			return title
		case i == byRank:
			return title + "↑"
		}
		return title + "↓"
	}
	var b strings.Builder
	b.WriteString(pad(mark(byRank, "HOST, RANK"), m.nameWidth()))
	for i, c := range columns {
		if m.shown(c) {
			b.WriteString(right(mark(i, c.title), c.width))
		}
	}
	b.WriteString(" STATE")
	return inverted + pad(b.String(), m.width) + plain
}

// line returns the line of a row.
func (m Model) line(r row) string {
	name := "    " + strconv.Itoa(r.rank)
	switch {
	case r.rank < 0 && m.folds():
		name = "▸ " + jobs.Clean(r.host) + "  " + r.ranks
	case r.rank < 0:
		name = "▾ " + jobs.Clean(r.host) + "  " + r.ranks
	}
	var b strings.Builder
	b.WriteString(pad(cut(name, m.nameWidth()), m.nameWidth()))
	for _, c := range columns {
		if !m.shown(c) {
			continue
		}
		if text := c.text(r); c.title == "WHERE THE TIME GOES" {
			b.WriteString("  " + pad(text, c.width-2))
		} else {
			b.WriteString(right(text, c.width))
		}
	}
	b.WriteString(" " + jobs.Clean(r.state))
	if r.rank < 0 {
		return bold + strings.ReplaceAll(b.String(), plain, plain+bold) + plain
	}
	return b.String()
}

// foot returns the last line.
func (m Model) foot(all, last int) string {
	if m.typing {
		return "/" + m.filter + inverted + " " + plain
	}
	if m.note != "" {
		return alarming + jobs.Clean(m.note) + plain
	}
	text := "q quit  ? keys  / filter  <> sort  space fold"
	if m.filter != "" {
		text = "only " + m.filter + " (esc: all)  " + text
	}
	where := ""
	if all > last-m.first {
		where = fmt.Sprintf("%d-%d of %d", m.first+1, last, all)
	}
	text = cut(text, m.width-len(where)-1)
	return text + strings.Repeat(" ", max(m.width-ansi.StringWidth(text)-len(where), 0)) + where
}

// keys is the screen of keys.
const keys = `Keys

  q, Ctrl-C              leave; the job goes on
  up, down, page up,     move
  page down, home, end
  space                  fold the hosts, or unfold them
  /                      show ranks only whose host or state has a text;
                         7 and 8-15 are ranks
  esc                    show all ranks
  < >                    sort by the next column

COMP, DATA, COMM and OTHERS are shares of the last five seconds: computing,
and waiting for data, for communication and for other ranks. CPU is 100% for
each CPU in use.

Any key leads back.
`

// duration writes microseconds.
func duration(us int64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.3g s", float64(us)/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.3g ms", float64(us)/1e3)
	}
	return fmt.Sprintf("%d µs", us)
}

// clock writes how long a job runs.
func clock(d time.Duration) string {
	s := max(int(d.Seconds()), 0)
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// bytes writes a number of bytes with a unit.
func bytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	i := 0
	for ; n >= 999.5 && i < len(units)-1; i++ {
		n /= 1000
	}
	if i == 0 || n >= 99.5 {
		return fmt.Sprintf("%.0f %s", n, units[i])
	}
	return fmt.Sprintf("%.2g %s", n, units[i])
}

func cut(s string, width int) string { return ansi.Truncate(s, max(width, 0), "…") }

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-ansi.StringWidth(s), 0))
}

func right(s string, width int) string {
	return strings.Repeat(" ", max(width-ansi.StringWidth(s), 0)) + s
}
