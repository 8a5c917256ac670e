package failure_test

import (
	"strings"
	"testing"

	"gorun/launcher/failure"
)

// TestLimitHint: what the kernel and the Go runtime report about limits leads to the limit.
func TestLimitHint(t *testing.T) {
	for text, want := range map[string]string{
		"localhost: connect: start worker: pipe2: too many open files":                                                                                                   "nofile",
		"open /x: too many open files in system":                                                                                                                         "fs.file-max",
		"host1: start daemon: guard daemon: start daemon: fork/exec /proc/self/exe: resource temporarily unavailable":                                                    "pids.max",
		"rank 0 on localhost could not start: /usr/bin/true: resource temporarily unavailable":                                                                           "pids.max",
		"localhost: start daemon: " + failure.LastLine("runtime: failed to create new OS thread (have 8 already; errno=11)\nfatal error: newosproc\n\nruntime stack:\n"): "pids.max",
		"host1: connect: connection refused":                                                                                                                             "",
		"read socket: resource temporarily unavailable":                                                                                                                  "",
	} {
		if got := failure.LimitHint(text); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// TestLastLine: of what a program of gorun wrote, its error counts, without gorun's own prefix and without the hint.
func TestLastLine(t *testing.T) {
	for said, want := range map[string]string{
		"a line\nthe last\n": "the last",
		"gorun: warning: w\ngorun: error: the reason\ngorun: hint: do this\n": "the reason",
		"": "",
	} {
		if got := failure.LastLine(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}
