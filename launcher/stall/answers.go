package stall

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// Answers are what daemons reported in one round.
type Answers struct {
	Hosts []string // the names of all hosts, by id
	By    map[int]*wire.Stalled
}

// waited describes an operation that waits, or waited, for too long.
type waited struct {
	kind, missing string
	absent        []wire.Missing // the same as missing
	since         time.Time
}

// late returns what waits for too long, and one operation that has reached the user's limit.
func (a Answers) late(now time.Time) (late map[operation]waited, over *operation) {
	late = map[operation]waited{}
	for _, id := range slices.Sorted(maps.Keys(a.By)) {
		for _, w := range a.By[id].Ops {
			op := operation{w.Group, w.Name}
			if !w.Late {
				continue
			}
			if w.Over && over == nil {
				over = &op
			}
			// The oldest answer is the nearest to the truth.
			since := now.Add(-time.Duration(w.AgeMS) * time.Millisecond)
			if old, ok := late[op]; !ok || since.Before(old.since) {
				late[op] = waited{kind: w.Kind, since: since}
			}
		}
	}
	for op, w := range late {
		w.missing = a.missing(op)
		for host, ranks := range a.missingByHost(op) {
			w.absent = append(w.absent, wire.Missing{Host: host, Ranks: ranks})
		}
		late[op] = w
	}
	return late, over
}

// missingByHost returns the ranks that have not submitted an operation. A host knows best about its own ranks.
func (a Answers) missingByHost(op operation) map[string][]int {
	byHost := map[string][]int{}
	own := map[string]bool{} // hosts that reported their own ranks
	for id, answer := range a.By {
		i := slices.IndexFunc(answer.Ops, op.is)
		if i < 0 {
			continue
		}
		name := a.Hosts[id]
		own[name] = true
		delete(byHost, name)
		for _, m := range answer.Ops[i].Missing {
			if m.Host == name || !own[m.Host] {
				byHost[m.Host] = m.Ranks
			}
		}
	}
	return byHost
}

// absent reports whether a rank of a host is among those that are missing. A host that joined after the daemons were asked has none.
func (a Answers) absent(missing map[string][]int, rank, host int) bool {
	return host < len(a.Hosts) && slices.Contains(missing[a.Hosts[host]], rank)
}

// silent reports whether a host has not answered, whichever of its daemons was asked.
func (a Answers) silent(name string) bool {
	asked := false
	for id, of := range a.Hosts {
		if of == name && a.By[id] != nil {
			return false
		}
		asked = asked || of == name
	}
	return asked
}

// missing names the ranks that have not submitted an operation.
func (a Answers) missing(op operation) string {
	byHost := a.missingByHost(op)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(byHost)) {
		part := fmt.Sprintf("%s on %s", why.Ranks(byHost[name]), name)
		if a.silent(name) {
			part += " (which does not answer)"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "data that is under way"
	}
	return strings.Join(parts, " and ")
}

// Of returns what a rank of a host does in the operations that are not finished, the oldest first.
func (a Answers) Of(rank, host int) (does []string) {
	own := a.By[host]
	for _, op := range a.open() {
		missing := a.missingByHost(op.operation)
		since := ""
		if op.age >= time.Second { // less is not known: the clock runs from the first look
			since = fmt.Sprintf(", for %v or longer", op.age.Round(time.Second))
		}
		name := op.describe(op.kind)
		submitted := own != nil && slices.ContainsFunc(own.Ops, op.is)
		switch {
		case a.absent(missing, rank, host):
			does = append(does, fmt.Sprintf("has not called %s, which others wait for%s", name, since))
		case submitted && len(missing) == 0:
			does = append(does, fmt.Sprintf("in %s%s", name, since))
		case submitted:
			does = append(does, fmt.Sprintf("waits in %s for %s%s", name, a.missing(op.operation), since))
		}
	}
	return does
}

// Waits reports whether a rank of a host has submitted an operation that is not finished.
func (a Answers) Waits(rank, host int) bool {
	own := a.By[host]
	return own != nil && slices.ContainsFunc(own.Ops, func(w wire.Waiting) bool {
		return !a.absent(a.missingByHost(operation{w.Group, w.Name}), rank, host)
	})
}

// Lasting returns the operations that some host has waited in for so long. Daemons look at different moments, so that answers may
// show ranks as waiting for each other when they never did: what has lasted for longer than those are apart was on all hosts at once.
func (a Answers) Lasting(least time.Duration) Answers {
	open, lasting := a.open(), Answers{Hosts: a.Hosts, By: map[int]*wire.Stalled{}}
	for id, answer := range a.By {
		lasting.By[id] = &wire.Stalled{Asked: answer.Asked, More: answer.More, Ops: slices.DeleteFunc(slices.Clone(answer.Ops), func(w wire.Waiting) bool {
			return slices.ContainsFunc(open, func(o openOperation) bool { return o.is(w) && o.age < least })
		})}
	}
	return lasting
}

// Behind returns how long others have waited for a rank of a host in an operation, at least; false if none does.
func (a Answers) Behind(rank, host int) (since time.Duration, ok bool) {
	for _, op := range a.open() {
		if a.absent(a.missingByHost(op.operation), rank, host) {
			return op.age, true
		}
	}
	return 0, false
}

// openOperation is one that is not finished on some host.
type openOperation struct {
	operation
	kind string
	age  time.Duration
}

// open returns the operations that are not finished on some host, the oldest first.
func (a Answers) open() (open []openOperation) {
	for _, id := range slices.Sorted(maps.Keys(a.By)) {
		for _, w := range a.By[id].Ops {
			op := openOperation{operation{w.Group, w.Name}, w.Kind, time.Duration(w.AgeMS) * time.Millisecond}
			if i := slices.IndexFunc(open, func(o openOperation) bool { return o.operation == op.operation }); i >= 0 {
				open[i].age = max(open[i].age, op.age)
			} else {
				open = append(open, op)
			}
		}
	}
	slices.SortStableFunc(open, func(a, b openOperation) int { return cmp.Compare(b.age, a.age) })
	return open
}
