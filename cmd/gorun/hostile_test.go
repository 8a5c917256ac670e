package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode"

	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// orders are what would clear a terminal, retitle it, or write another line, some as one character of 8 bits.
const orders = "\x1b[2J\x1b]0;x\x07\u009b2J\r\x7f"

// TestHostileNames: names that come from hosts, from files and from arguments give no orders to the terminal, and a
// word of a dry run is still what a shell would take.
func TestHostileNames(t *testing.T) {
	var shown bytes.Buffer
	shares := []wire.Share{{Host: "h" + orders, Slots: 1}}
	showCluster(&shown, &wire.Jobs{
		Members: []wire.MemberState{{Host: "h" + orders, Addr: "a" + orders}},
		Jobs:    []wire.JobState{{User: "u" + orders, Program: "p" + orders, Shares: shares}},
	}, []jobs.Entry{{Record: jobs.Record{Program: "p" + orders, Machine: "m" + orders, State: jobs.Unattended, Started: time.Now()}}})
	silent(t, shown.String())

	words := []string{"a" + orders, "it's" + orders, "two\nlines\t", "\xff", "plain", ""}
	got, err := exec.CommandContext(t.Context(), "bash", "-c", `printf '%s|' `+quoteAll(words)).Output()
	if want := strings.Join(words, "|") + "|"; err != nil || string(got) != want {
		t.Errorf("bash takes %q for %q, %v", got, want, err)
	}
}

func silent(t *testing.T, shown string) {
	t.Helper()
	for line := range strings.Lines(shown) {
		if at := strings.IndexFunc(strings.TrimSuffix(line, "\n"), unicode.IsControl); at >= 0 || len(shown) < 10 {
			t.Errorf("this orders the terminal: %q", line)
		}
	}
}
