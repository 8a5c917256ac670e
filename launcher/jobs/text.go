package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// States, in a list, of a job whose launcher runs.
const (
	Waiting = "waiting" // it has no slots yet
	Paused  = "paused"  // by Ctrl-Z, for example
	Ending  = "ending"  // it was stopped, and its ranks are about to end
)

// Listed returns the record as lists show it.
func (r Record) Listed() Record {
	if r.Hosts == nil {
		r.Hosts = []string{}
	}
	switch {
	case r.State != Running:
	case r.Paused:
		r.State = Paused
	case !r.Stopping.IsZero():
		r.State = Ending
	case r.Ranks == 0:
		r.State = Waiting
	}
	return r
}

// StateText describes the state of the job in a line for users.
func (r Record) StateText() string {
	clock := func(t time.Time) string { return t.Local().Format(time.TimeOnly) }
	switch r.State {
	case Ended:
		return r.endText()
	case Lost:
		return "lost: its launcher was killed"
	case Moved:
		return "another host carries it on"
	case Unattended:
		return fmt.Sprintf("no answer from its launcher on %s, heard last at %s; another host carries it on a --lease after that",
			Clean(r.Machine), clock(r.Silent[r.Machine]))
	}
	text := r.Listed().State
	if text == Ending {
		text += ", stopped by " + Clean(r.StoppedBy)
	}
	if r.Foreground {
		text += ", in the foreground"
	}
	for _, host := range slices.Sorted(maps.Keys(r.Silent)) {
		text += fmt.Sprintf(", %s silent since %s", Clean(host), clock(r.Silent[host]))
	}
	for _, p := range r.Partitions {
		text += fmt.Sprintf(", %s silent to %s since %s", Clean(p.Host), Clean(p.To), clock(p.Since))
	}
	return text
}

// endText describes the end of the job: its exit status, when, and why.
func (r Record) endText() string {
	text := fmt.Sprintf("ended with %d", r.Code)
	if !r.Ended.IsZero() {
		text += " at " + moment(r.Ended)
	}
	switch {
	case r.Abandoned != "":
		text += ": " + Clean(r.Abandoned)
	case r.StoppedBy != "":
		text += ", stopped by " + Clean(r.StoppedBy)
	case r.Why != "":
		text += ": " + Clean(r.Why)
	}
	return text
}

// moment returns a time of this day without the date.
func moment(t time.Time) string {
	t, now := t.Local(), time.Now()
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// Clean replaces what is not printed, with which a text from elsewhere could move the terminal's cursor.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
