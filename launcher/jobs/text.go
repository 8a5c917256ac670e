package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Waiting is the state, in a list, of a job whose launcher runs and has no slots yet.
const Waiting = "waiting"

// Listed returns the record as lists show it.
func (r Record) Listed() Record {
	if r.Hosts == nil {
		r.Hosts = []string{}
	}
	if r.State == Running && r.Ranks == 0 {
		r.State = Waiting
	}
	return r
}

// StateText describes the state of the job in a line for users.
func (r Record) StateText() string {
	clock := func(t time.Time) string { return t.Local().Format(time.TimeOnly) }
	switch r.State {
	case Ended:
		if r.Abandoned != "" {
			return fmt.Sprintf("ended with %d: %s", r.Code, Clean(r.Abandoned))
		}
		return fmt.Sprintf("ended with %d", r.Code)
	case Lost:
		return "its launcher was killed"
	case Moved:
		return "another host carries it on"
	case Unattended:
		return fmt.Sprintf("no answer from its launcher on %s, heard last at %s; another host carries it on a --lease after that",
			Clean(r.Machine), clock(r.Silent[r.Machine]))
	}
	text := r.Listed().State
	for _, host := range slices.Sorted(maps.Keys(r.Silent)) {
		text += fmt.Sprintf(", %s silent since %s", Clean(host), clock(r.Silent[host]))
	}
	for _, p := range r.Partitions {
		text += fmt.Sprintf(", %s silent to %s since %s", Clean(p.Host), Clean(p.To), clock(p.Since))
	}
	return text
}

// Clean replaces control characters, with which a text from elsewhere could move the terminal's cursor.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
