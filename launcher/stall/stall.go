// Package stall finds out, for a whole job, which ranks an operation waits for. A daemon knows its own ranks and what
// other hosts reported to it; the launcher asks all of them, and this package puts their Answers together:
//
//	lines, giveUp := reports.Judge(time.Now(), stall.Answers{Hosts: names, By: answers})
//
// Reports remembers what the user has read, so that Judge returns only what is new: operations that wait for too long,
// ranks that wait for each other, operations that are over, and, once, what to give up when an operation has reached
// the user's limit. The package is pure: no I/O, no clock, no goroutine.
package stall

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// Reports is what the user has read. The zero value is ready to use.
type Reports struct {
	shown  map[operation]waited
	gaveUp bool
}

// Judge returns the lines that are new after a round of answers, and what all daemons are to give up; nil for nothing.
func (r *Reports) Judge(now time.Time, a Answers) (lines []string, giveUp *wire.GiveUp) {
	late, over := a.late(now)
	var fresh, gone []operation
	for op, w := range late {
		if old, ok := r.shown[op]; !ok || old.missing != w.missing {
			fresh = append(fresh, op)
		}
	}
	for op := range r.shown {
		if _, ok := late[op]; !ok {
			gone = append(gone, op)
		}
	}
	lines = waiting(fresh, late, func(w waited, several bool) string {
		if several {
			return fmt.Sprintf("have waited up to %s for %s", ago(now.Sub(w.since)), w.missing)
		}
		return fmt.Sprintf("has waited %s for %s", ago(now.Sub(w.since)), w.missing)
	})
	lines = append(lines, crossings(fresh, late)...)
	lines = append(lines, waiting(gone, r.shown, func(w waited, several bool) string {
		if several {
			return fmt.Sprintf("are over after up to %s", ago(now.Sub(w.since)))
		}
		return fmt.Sprintf("is over after %s", ago(now.Sub(w.since)))
	})...)
	r.shown = late
	if over != nil && !r.gaveUp {
		r.gaveUp = true
		giveUp = explainGivenUp(now, late, *over)
		lines = append(lines, fmt.Sprintf("%s: giving up", giveUp.Text))
	}
	return lines, giveUp
}

// Waiting reports whether operations waited for too long in the last round.
func (r *Reports) Waiting() bool { return len(r.shown) > 0 }

// explainGivenUp gives up all late operations, because one has reached the user's limit.
func explainGivenUp(now time.Time, late map[operation]waited, over operation) *wire.GiveUp {
	m := &wire.GiveUp{}
	for op, w := range late {
		text := fmt.Sprintf("%s waited %s for %s", op.describe(w.kind), ago(now.Sub(w.since)), w.missing)
		if op == over {
			text += ", which is the limit of HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
			m.Text = text
		} else {
			text += ", and another operation until the limit of HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
		}
		m.Each = append(m.Each, wire.GivenUp{Name: op.name, Group: op.group, Text: text})
	}
	return m
}

const (
	mostNamed = 16 // operations that one line names
	mostLines = 16 // of one kind in a report
)

// waiting returns a line for all operations that wait, or waited, for the same ranks. describe completes the line.
func waiting(ops []operation, of map[operation]waited, describe func(w waited, several bool) string) (lines []string) {
	slices.SortFunc(ops, func(a, b operation) int {
		return cmp.Or(of[a].since.Compare(of[b].since), strings.Compare(a.name, b.name), cmp.Compare(a.group, b.group))
	})
	for len(ops) > 0 {
		if len(lines) == mostLines {
			return append(lines, fmt.Sprintf("%d more operations wait, or waited, for other ranks", len(ops)))
		}
		first := of[ops[0]]
		var names []string
		var rest []operation
		more := 0
		for _, op := range ops {
			switch {
			case of[op].missing != first.missing:
				rest = append(rest, op)
			case len(names) == mostNamed:
				more++
			default:
				names = append(names, op.describe(of[op].kind))
			}
		}
		what := strings.Join(names, ", ")
		if more > 0 {
			what += fmt.Sprintf(" and %d more", more)
		}
		lines = append(lines, fmt.Sprintf("%s %s", what, describe(first, len(names) > 1)))
		ops = rest
	}
	return lines
}

// crossings returns a line for all operations of one name in which ranks wait for each other, if one of them is fresh.
func crossings(fresh []operation, late map[operation]waited) (lines []string) {
	var ops []wire.Waiting
	for op, w := range late {
		ops = append(ops, wire.Waiting{Kind: w.kind, Name: op.name, Group: op.group, Missing: w.absent})
	}
	slices.SortFunc(ops, func(a, b wire.Waiting) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), strings.Compare(a.Name, b.Name))
	})
	for _, crossing := range wire.Crossings(ops) {
		if !slices.ContainsFunc(crossing, func(c wire.Crossed) bool {
			return slices.Contains(fresh, operation{ops[c.Op].Group, ops[c.Op].Name})
		}) {
			continue
		}
		if len(lines) == mostLines {
			return lines
		}
		var parts []string
		for _, c := range crossing {
			var who []string
			for _, m := range c.Ranks {
				who = append(who, why.Ranks(m.Ranks)+" on "+m.Host)
			}
			what, name := ops[c.Op].Called()
			part := fmt.Sprintf("%s in %s", strings.Join(who, " and "), operation{ops[c.Op].Group, name}.describe(what))
			if !slices.Contains(parts, part) { // each tensor of a group is an operation
				parts = append(parts, part)
			}
		}
		lines = append(lines, fmt.Sprintf("the same name, different operations: %s; call the same one on all of them",
			strings.Join(parts, ", ")))
	}
	return lines
}

// operation identifies an operation by process set and name.
type operation struct {
	group uint32
	name  string
}

func (o operation) is(w wire.Waiting) bool { return w.Group == o.group && w.Name == o.name }

func (o operation) describe(kind string) string {
	text := kind
	if o.name != "" {
		text += fmt.Sprintf(" %q", o.name)
	}
	if o.group != 0 && o.group < wire.Pairs {
		text += fmt.Sprintf(" of process set %d", o.group)
	}
	return text
}

// ago writes a duration as seconds.
func ago(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
