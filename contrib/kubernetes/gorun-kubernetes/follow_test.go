package main

import (
	"strings"
	"testing"
)

// FuzzLog: lines of a log are copied once, whatever they have, and however often and wherever the log begins again.
func FuzzLog(f *testing.F) {
	f.Add("a\nb\nc", uint8(1), uint8(0))
	f.Add("", uint8(0), uint8(3))
	f.Add(strings.Repeat("long", 40000)+"\n\n", uint8(2), uint8(1))
	f.Fuzz(func(t *testing.T, text string, cut, same uint8) {
		lines := strings.SplitAfter(text, "\n")
		var log []string
		for i, line := range lines {
			if line != "" {
				at := "2026-01-01T00:00:0" + string(rune('0'+min(9, i/(1+int(same)%4)))) + ".5Z" // some have the same time
				log = append(log, at+" "+line)
			}
		}
		var out strings.Builder
		l := &logReader{to: &out}
		first := log[:min(len(log), int(cut))]
		if err := l.copy(strings.NewReader(strings.Join(first, ""))); err != nil {
			t.Fatal(err)
		}
		if err := l.copy(strings.NewReader(strings.Join(log, ""))); err != nil {
			t.Fatal(err)
		}
		if out.String() != text {
			t.Errorf("%.200q instead of %.200q", out.String(), text)
		}
	})
}

// FuzzStrayLog: what is no log is copied, too, and bounds nothing.
func FuzzStrayLog(f *testing.F) {
	f.Add("failed to watch file\n2026-01-01T00:00:00Z line\n")
	f.Fuzz(func(t *testing.T, text string) {
		var out strings.Builder
		if err := (&logReader{to: &out}).copy(strings.NewReader(text)); err != nil || out.Len() > len(text) {
			t.Errorf("%v: %d bytes of %d", err, out.Len(), len(text))
		}
	})
}
