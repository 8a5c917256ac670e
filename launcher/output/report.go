package output

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
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

// HostTable returns the lines of a table whose rows have a host, the step at which it failed, and why.
func HostTable(rows [][3]string) []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range append([][3]string{{"HOST", "STEP", "REASON"}}, rows...) {
		fmt.Fprintf(w, "    %s\t%s\t%s\n", Printable(row[0]), Printable(row[1]), Printable(row[2]))
	}
	w.Flush()
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}
