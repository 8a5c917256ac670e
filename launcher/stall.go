package launcher

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
)

// answerTime is how long the daemons have to say what they wait for. One that does not answer is named.
const answerTime = 2 * time.Second

// stalls follows operations that wait for too long. A daemon that has some reports that; then all daemons are asked,
// and from their answers together follows which ranks are missed: every daemon knows best about its own.
type stalls struct {
	asking  bool
	again   bool // something changed meanwhile
	answers answers
	timeout <-chan time.Time
	shown   map[operation]waited
	gaveUp  bool
}

// answers are what daemons reported of the operations that wait, in one round.
type answers struct {
	hosts []string // by id
	by    map[int]*wire.Stalled
}

// operation is known by process set and name.
type operation struct {
	group uint32
	name  string
}

// waited is what was last reported about an operation.
type waited struct {
	kind, missing string
	absent        []wire.Missing // the same
	since         time.Time
}

// stalled takes a report of a daemon.
func (j *job) stalled(h *host, m *wire.Stalled) {
	s := &j.stalls
	switch {
	case j.stopping:
	case m.Asked && s.asking:
		s.answers.by[h.id] = m
		switch {
		case j.inspection.over != nil:
			j.inspectedAll()
		case len(s.answers.by) == j.running():
			j.judgeStalls()
		}
	case m.Asked: // too late
	case s.asking:
		s.again = true
	default:
		j.askStalled()
	}
}

// running counts the daemons that can answer.
func (j *job) running() int {
	n := 0
	for _, h := range j.hosts {
		if h.up && !h.ended {
			n++
		}
	}
	return n
}

func (j *job) askStalled() {
	s := &j.stalls
	s.asking, s.again = true, false
	s.answers = answers{by: map[int]*wire.Stalled{}}
	for _, h := range j.hosts {
		s.answers.hosts = append(s.answers.hosts, h.name)
	}
	s.timeout = time.After(answerTime)
	j.broadcast(&wire.AskStalled{})
}

// judgeStalls prints what is new after a round of answers.
func (j *job) judgeStalls() {
	s := &j.stalls
	s.asking, s.timeout = false, nil
	now := time.Now()
	late, over := s.answers.late(now)
	var fresh, gone []operation
	for op, w := range late {
		if old, ok := s.shown[op]; !ok || old.missing != w.missing {
			fresh = append(fresh, op)
		}
	}
	for op := range s.shown {
		if _, ok := late[op]; !ok {
			gone = append(gone, op)
		}
	}
	j.showStalls(fresh, late, func(w waited, several bool) string {
		if several {
			return fmt.Sprintf("wait for %s since up to %s", w.missing, ago(now.Sub(w.since)))
		}
		return fmt.Sprintf("waits for %s since %s", w.missing, ago(now.Sub(w.since)))
	})
	j.showCrossings(fresh, late)
	j.showStalls(gone, s.shown, func(w waited, several bool) string {
		if several {
			return fmt.Sprintf("are over after up to %s", ago(now.Sub(w.since)))
		}
		return fmt.Sprintf("is over after %s", ago(now.Sub(w.since)))
	})
	s.shown = late
	if over != nil && !s.gaveUp {
		s.gaveUp = true
		m := &wire.GiveUp{}
		for op, w := range late {
			text := fmt.Sprintf("%s waited %s for %s", describeOperation(op, w.kind), ago(now.Sub(w.since)), w.missing)
			if op == *over {
				text += ", which is the limit of HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
				m.Text = text
			} else {
				text += ", and another operation until the limit of HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
			}
			m.Each = append(m.Each, wire.GivenUp{Name: op.name, Group: op.group, Text: text})
		}
		j.spec.Note("gorun: stall: %s: giving up", m.Text)
		j.broadcast(m)
		return
	}
	if s.again {
		j.askStalled()
	}
}

// late returns what waits for too long, and one operation that shall wait no longer.
func (a answers) late(now time.Time) (late map[operation]waited, over *operation) {
	late = map[operation]waited{}
	for _, id := range slices.Sorted(maps.Keys(a.by)) {
		for _, w := range a.by[id].Ops {
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

// missingByHost returns the ranks whose part is not there.
func (a answers) missingByHost(op operation) map[string][]int {
	byHost := map[string][]int{}
	own := map[string]bool{} // hosts that spoke for themselves
	for id, answer := range a.by {
		i := slices.IndexFunc(answer.Ops, op.is)
		if i < 0 {
			continue
		}
		name := a.hosts[id]
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

// missing names them.
func (a answers) missing(op operation) string {
	byHost := a.missingByHost(op)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(byHost)) {
		part := fmt.Sprintf("%s on %s", listRanks(byHost[name]), name)
		if id := slices.Index(a.hosts, name); id >= 0 && a.by[id] == nil {
			part += " (which does not answer)"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "data that is under way"
	}
	return strings.Join(parts, " and ")
}

// What a report of stalls names at most: operations that wait for the same ranks, and sets of ranks.
const (
	mostNamed = 16
	mostLines = 16
)

// showStalls prints a line for all operations that wait, or waited, for the same ranks.
func (j *job) showStalls(ops []operation, of map[operation]waited, say func(w waited, several bool) string) {
	slices.SortFunc(ops, func(a, b operation) int {
		return cmp.Or(of[a].since.Compare(of[b].since), strings.Compare(a.name, b.name), cmp.Compare(a.group, b.group))
	})
	for lines := 0; len(ops) > 0; lines++ {
		if lines == mostLines {
			j.spec.Note("gorun: stall: %d more operations wait, or waited, for other ranks", len(ops))
			return
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
				names = append(names, describeOperation(op, of[op].kind))
			}
		}
		what := strings.Join(names, ", ")
		if more > 0 {
			what += fmt.Sprintf(" and %d more", more)
		}
		j.spec.Note("gorun: stall: %s %s", what, say(first, len(names) > 1))
		ops = rest
	}
}

// showCrossings prints a line for all operations of one name in which ranks wait for each other, if one of them is new.
func (j *job) showCrossings(fresh []operation, late map[operation]waited) {
	var ops []wire.Waiting
	for op, w := range late {
		ops = append(ops, wire.Waiting{Kind: w.kind, Name: op.name, Group: op.group, Missing: w.absent})
	}
	slices.SortFunc(ops, func(a, b wire.Waiting) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), strings.Compare(a.Name, b.Name))
	})
	lines := 0
	for _, crossing := range wire.Crossings(ops) {
		if !slices.ContainsFunc(crossing, func(c wire.Crossed) bool {
			return slices.Contains(fresh, operation{ops[c.Op].Group, ops[c.Op].Name})
		}) {
			continue
		}
		if lines++; lines > mostLines {
			return
		}
		var parts []string
		for _, c := range crossing {
			var who []string
			for _, m := range c.Ranks {
				who = append(who, listRanks(m.Ranks)+" on "+m.Host)
			}
			what, name := ops[c.Op].Called()
			part := fmt.Sprintf("%s in %s", strings.Join(who, " and "), describeOperation(operation{ops[c.Op].Group, name}, what))
			if !slices.Contains(parts, part) { // each tensor of a group is an operation
				parts = append(parts, part)
			}
		}
		j.spec.Note("gorun: stall: the same name, different operations: %s; call the same one on all of them", strings.Join(parts, ", "))
	}
}

func describeOperation(op operation, kind string) string {
	text := kind
	if op.name != "" {
		text += fmt.Sprintf(" %q", op.name)
	}
	if op.group != 0 && op.group < wire.Pairs {
		text += fmt.Sprintf(" of process set %d", op.group)
	}
	return text
}

// listRanks writes ranks as "rank 3" or "ranks 1,2", and not all of very many.
func listRanks(ranks []int) string {
	const most = 16
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	var words []string
	for i, r := range ranks {
		if i == most {
			words = append(words, fmt.Sprintf("… (%d in all)", len(ranks)))
			break
		}
		words = append(words, fmt.Sprint(r))
	}
	return "ranks " + strings.Join(words, ",")
}

// ago writes a duration as seconds.
func ago(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
