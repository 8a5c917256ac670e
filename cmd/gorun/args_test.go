package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzCommandLine: words of a launch are rewritten up to the program, which stays as it is, and none is lost.
func FuzzCommandLine(f *testing.F) {
	f.Add("gorun\n-np\n2\n-mca\na\nb\n--x=1\npython\n-np\n3")
	f.Add("horovodrun\n-v\n-genv\nA")
	f.Add("gorun\n--\n-np\n-H")
	f.Add("gorun\n-blacklist-cooldown-range\n1\n2\n-\n--=\n---")
	flags := new(jobFlags).table()
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		out, err := launchArgs(args, flags)
		if err != nil {
			return
		}
		words := strings.Split(strings.Join(out, "\n"), "\n")
		again := strings.FieldsFunc(strings.Join(words, " "), func(c rune) bool { return c == ' ' })
		before := strings.FieldsFunc(strings.Join(args, " "), func(c rune) bool { return c == ' ' })
		if !calledHorovodrun(args) && !slices.Equal(again, before) {
			t.Fatalf("%q became %q", args, out)
		}
		for i := range args {
			if i > 0 && i < len(out) && !strings.HasPrefix(args[1], "-") && out[i] != args[i] {
				t.Fatalf("%q became %q", args, out)
			}
		}
		for _, word := range args {
			likeFlag(flags, word)
		}
	})
}

// FuzzTimes: times of flags are as long as their text says, and ranges in order.
func FuzzTimes(f *testing.F) {
	for _, seed := range []string{"30", "1m30s", "-1", "1e300", "NaN", "1 2", "2,1", "10,100", ","} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s seconds
		if err := s.Set(text); err == nil && (time.Duration(s) > 1<<62 || s.String() == "") {
			t.Fatalf("%q is %v", text, time.Duration(s))
		}
		var r timeRange
		if err := r.Set(text); err == nil && (r.min <= 0 || r.max < r.min) {
			t.Fatalf("%q is %v to %v", text, r.min, r.max)
		}
	})
}
