package output

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Report prints errors: where and what in one line, the next step in another.
type Report struct{ W io.Writer }

// Errorf prints "gorun: error: …".
func (r Report) Errorf(format string, args ...any) { r.line("error", format, args) }

// Hintf prints "gorun: hint: …".
func (r Report) Hintf(format string, args ...any) { r.line("hint", format, args) }

func (r Report) line(kind, format string, args []any) {
	fmt.Fprintf(r.W, "gorun: %s: %s\n", kind, Printable(fmt.Sprintf(format, args...)))
}

// Detail prints an indented line that belongs to the previous one.
func (r Report) Detail(text string) { io.WriteString(r.W, "    "+Printable(text)+"\n") }

// Tail prints the last lines of a rank's standard error, indented.
func (r Report) Tail(rank int, lines []string) {
	if len(lines) == 0 {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "gorun: the last lines rank %d wrote to standard error:\n", rank)
	for _, line := range lines {
		b.WriteString("    " + clean(line) + "\n")
	}
	io.WriteString(r.W, b.String())
}

// HostFailure is a row of the table of hosts that failed.
type HostFailure struct{ Host, Step, Reason string }

// Hosts prints a table of hosts, the step at which each failed, and the reason.
func (r Report) Hosts(rows []HostFailure) {
	table := [][3]string{{"HOST", "STEP", "REASON"}}
	for _, row := range rows {
		table = append(table, [3]string{Printable(row.Host), Printable(row.Step), Printable(row.Reason)})
	}
	var width [2]int
	for _, row := range table {
		for i := range width {
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range table {
		fmt.Fprintf(&b, "    %-*s  %-*s  %s\n", width[0], row[0], width[1], row[1], row[2])
	}
	io.WriteString(r.W, b.String())
}
