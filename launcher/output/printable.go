package output

import (
	"regexp"
	"strings"
	"sync"
)

// escape matches terminal commands: CSI sequences (colours, cursor), OSC strings (titles, links), and two-byte ones.
var escape = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -~])`)
})

// Printable turns text from an untrusted source, such as a host's error, into one line that is safe for a terminal.
func Printable(s string) string { return clean(strings.TrimSpace(s)) }

// PrintableLines is Printable for a text of several lines, which keep their indentation.
func PrintableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// clean removes everything that would make a terminal do more than print.
func clean(s string) string {
	s = escape().ReplaceAllLiteralString(strings.ToValidUTF8(s, "�"), "")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, s)
}
