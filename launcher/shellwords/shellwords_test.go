package shellwords

import (
	"reflect"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for in, want := range map[string][]string{
		"":                           nil,
		"  a  b ":                    {"a", "b"},
		`a 'b c' "d e"f`:             {"a", "b c", "d ef"},
		`'' "" x`:                    {"", "", "x"},
		`a\ b "c\"d" 'e\f'`:          {"a b", `c"d`, `e\f`},
		"numactl -N {local_rank} --": {"numactl", "-N", "{local_rank}", "--"},
	} {
		if got, err := Split(in); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{`'a`: "' without an end", `"a`: "without an end", "a\x00b": "holds a zero byte"} {
		if got, err := Split(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v, want an error with %q", in, got, err, want)
		}
	}
}

// FuzzSplit: quoted words are split into the same words again.
func FuzzSplit(f *testing.F) {
	f.Add("a", "b c'\"\\")
	f.Fuzz(func(t *testing.T, a, b string) {
		Split(a)
		if strings.ContainsRune(a+b, 0) {
			return
		}
		quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
		if got, err := Split(quote(a) + " " + quote(b)); err != nil || !reflect.DeepEqual(got, []string{a, b}) {
			t.Errorf("got %q, %v; want %q", got, err, []string{a, b})
		}
	})
}
