package output_test

import (
	"slices"
	"strings"
	"testing"

	"gorun/launcher/output"
)

var endNames = map[output.End]string{output.LF: "⏎", output.CR: "←", output.Part: "…", output.EOF: "∎"}

// split pushes the pieces and returns the lines with a mark for their ends.
func split(limit int, pieces ...[]byte) []string {
	s := output.NewSplitter(limit)
	var lines []string
	emit := func(line []byte, end output.End) { lines = append(lines, string(line)+endNames[end]) }
	for _, p := range pieces {
		s.Push(p, emit)
	}
	s.Close(emit)
	return lines
}

func TestSplitter(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"lines", "a\nb\n", []string{"a⏎", "b⏎"}},
		{"empty lines", "\n\na\n", []string{"⏎", "⏎", "a⏎"}},
		{"unfinished", "a\nb", []string{"a⏎", "b∎"}},
		{"carriage returns", "1%\r2%\rdone\n", []string{"1%←", "2%←", "done⏎"}},
		{"progress bar", "\r1%\r2%\n", []string{"←", "1%←", "2%⏎"}},
		{"ends with return", "1%\r", []string{"1%←"}},
		{"DOS", "a\r\nb\r\n", []string{"a⏎", "b⏎"}},
		{"returns and feed", "a\r\r\nb", []string{"a←", "⏎", "b∎"}},
		{"as long as allowed", "12345678\nx\n", []string{"12345678⏎", "x⏎"}},
		{"too long", "123456789\n", []string{"12345678…", "9⏎"}},
		{"twice too long", "1234567890123456\n", []string{"12345678…", "90123456⏎"}},
		{"much too long", "12345678901234567\n", []string{"12345678…", "90123456…", "7⏎"}},
		{"long, then return", "123456789\r\n", []string{"12345678…", "9⏎"}},
		{"character at the limit", "1234567äx\n", []string{"1234567…", "äx⏎"}},
		{"wide character at the limit", "12345€€\n", []string{"12345€…", "€⏎"}},
		{"cut before four bytes", "12345\U0001F600\n", []string{"12345…", "\U0001F600⏎"}},
		{"no UTF-8", "1234567\xff\xff\xff\n", []string{"1234567\xff…", "\xff\xff⏎"}},
		{"continuation bytes only", strings.Repeat("\x80", 9) + "\n", []string{strings.Repeat("\x80", 8) + "…", "\x80⏎"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole := split(8, []byte(tt.in))
			if !slices.Equal(whole, tt.want) {
				t.Errorf("lines %q, want %q", whole, tt.want)
			}
			var bytewise [][]byte
			for i := range len(tt.in) {
				bytewise = append(bytewise, []byte(tt.in[i:i+1]))
			}
			if got := split(8, bytewise...); !slices.Equal(got, tt.want) {
				t.Errorf("byte by byte: lines %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\r\nb\rc\n"), uint8(1), uint8(4))
	f.Add([]byte("\r\r\n\xff\xf0\x9f\x98\x80"), uint8(3), uint8(5))
	f.Fuzz(func(t *testing.T, text []byte, step, limit uint8) {
		bound := max(int(limit), 4)
		whole := split(bound, text)
		if got := split(bound, slices.Collect(slices.Chunk(text, max(int(step), 1)))...); !slices.Equal(got, whole) {
			t.Fatalf("in pieces %q, at once %q", got, whole)
		}
		var joined strings.Builder
		for _, line := range whole {
			for mark, end := range map[string]string{"⏎": "\n", "←": "\r", "…": "", "∎": ""} {
				if text, ok := strings.CutSuffix(line, mark); ok {
					if len(text) > bound {
						t.Fatalf("line of %d bytes, at most %d", len(text), bound)
					}
					joined.WriteString(text + end)
					break
				}
			}
		}
		if want := strings.ReplaceAll(string(text), "\r\n", "\n"); joined.String() != want {
			t.Fatalf("lines make %q, not %q", joined.String(), want)
		}
	})
}
