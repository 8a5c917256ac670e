package output

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// Report prints errors: where and what in one line, the next step in another.
type Report struct{ W io.Writer }

// Errorf prints "gorun: error: …".
func (r Report) Errorf(format string, args ...any) { r.line("error", format, args) }

// Hintf prints "gorun: hint: …".
func (r Report) Hintf(format string, args ...any) { r.line("hint", format, args) }

// Warnf prints "gorun: warning: …".
func (r Report) Warnf(format string, args ...any) { r.line("warning", format, args) }

func (r Report) line(kind, format string, args []any) {
	fmt.Fprintf(r.W, "gorun: %s: %s\n", kind, Printable(fmt.Sprintf(format, args...)))
}

// Lines prints lines that belong to what stands before, as Detail, TailLines and HostTable make them.
func (r Report) Lines(lines []string) {
	for _, line := range lines {
		io.WriteString(r.W, line+"\n")
	}
}

// Detail returns an indented line.
func Detail(text string) string { return "    " + Printable(text) }

// TailLines returns the last lines of a rank's standard error, indented below a line that says whose they are.
func TailLines(rank int, lines []string) (out []string) {
	if len(lines) == 0 {
		return nil
	}
	out = append(out, fmt.Sprintf("gorun: the last lines rank %d wrote to standard error:", rank))
	for _, line := range lines {
		out = append(out, "    "+clean(line))
	}
	return out
}

// HostFailure is a row of the table of hosts that failed.
type HostFailure struct{ Host, Step, Reason string }

// HostTable returns the lines of a table of hosts, the step at which each failed, and why.
func HostTable(rows []HostFailure) (lines []string) {
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
	for _, row := range table {
		lines = append(lines, fmt.Sprintf("    %-*s  %-*s  %s", width[0], row[0], width[1], row[1], row[2]))
	}
	return lines
}
