// Package stall watches a host's operations that wait for ranks, and reports to the launcher which are late.
//
// Horovod's variables set after how long an operation is late, and when it is given up. The launcher combines the
// reports of all hosts and decides what to give up.
package stall

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorun/collective"
	"gorun/rendezvous/wire"
	"gorun/worker/rankenv"
	"gorun/worker/session"
)

const (
	// defaultWarning is how long an operation may wait for a rank before users hear of it, unless the job says otherwise.
	defaultWarning = 60 * time.Second
	// crossedWarning is how long ranks may wait for each other in different operations of one name.
	crossedWarning = time.Second
	// watchPrefix begins the names of operations that ranks start only to learn that another rank leaves: no other joins them.
	watchPrefix = "gorun.watch."
	// maxReported bounds the operations of a report.
	maxReported = 1000
)

// Engine knows the operations that are pending.
type Engine interface {
	Pending(now time.Time) []collective.Stall
}

// Sessions know what ranks wait for.
type Sessions interface {
	// Held returns the operations that ranks wait for although the engine does not have them open.
	Held(open []collective.Stall) []collective.Stall
	// Waiting returns the ranks that wait for others without an operation.
	Waiting(now time.Time) []collective.Stall
	// GiveUp fails everything that ranks wait for, for the reasons of each subject or else for err.
	GiveUp(err error, why map[session.Subject]error)
}

// Watch is the state of one host. The daemon's loop alone calls its methods.
type Watch struct {
	out      *wire.Writer
	engine   Engine
	sessions Sessions
	job      []string          // the environment of the job's ranks
	env      map[string]string // variables that ranks have set by themselves
	limits   limits
	tick     *time.Ticker
	reported string // the last report, without what changes with time
}

// New returns a watch over the operations of ranks with an environment. Its owner stops it.
func New(env []string, out *wire.Writer, engine Engine, sessions Sessions) *Watch {
	w := &Watch{out: out, engine: engine, sessions: sessions, job: env, tick: time.NewTicker(time.Hour)}
	w.setLimits()
	return w
}

// Stop ends the ticks.
func (w *Watch) Stop() { w.tick.Stop() }

// Ticks brings the times at which to call Check.
func (w *Watch) Ticks() <-chan time.Time { return w.tick.C }

// limits are after how long a waiting operation is late, and is given up; 0 is never.
type limits struct {
	warn, giveUp time.Duration
}

// readLimits reads Horovod's variables for it from the environment of ranks.
func readLimits(env []string) limits {
	seconds := func(name string, otherwise time.Duration) time.Duration {
		value, ok := rankenv.Lookup(env, name)
		n, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || n > float64(1<<31) {
			return otherwise
		}
		return time.Duration(max(n, 0) * float64(time.Second))
	}
	l := limits{
		warn:   seconds("HOROVOD_STALL_CHECK_TIME_SECONDS", defaultWarning),
		giveUp: seconds("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0),
	}
	if off, _ := rankenv.Lookup(env, "HOROVOD_STALL_CHECK_DISABLE"); off != "" && off != "0" {
		l.warn = 0
	}
	if l.giveUp < l.warn || l.warn == 0 {
		l.giveUp = 0 // as in Horovod
	}
	return l
}

// interval is the interval of checks: an operation's age counts from the check that found it.
func (l limits) interval() time.Duration {
	if l.warn == 0 {
		return time.Second
	}
	return min(max(l.warn/10, 50*time.Millisecond), time.Second)
}

// SetEnv takes a variable that a rank has set in its process before it joined.
func (w *Watch) SetEnv(name, value string) {
	if !strings.HasPrefix(name, "HOROVOD_STALL_") {
		return // nothing else changes the limits
	}
	if w.env == nil {
		w.env = map[string]string{}
	}
	w.env[name] = value
	w.setLimits()
}

// setLimits takes the limits from the environment.
func (w *Watch) setLimits() {
	env := w.job
	for name, value := range w.env {
		env = append(env[:len(env):len(env)], name+"="+value)
	}
	w.limits = readLimits(env)
	w.tick.Reset(w.limits.interval())
}

// Check reports to the launcher when other operations are late than before. In a pause of the ring no operation waits
// for a rank: it is not to be called then.
func (w *Watch) Check(now time.Time) {
	pending := w.pending(now) // whose age counts from here, also without reports
	if w.limits.warn == 0 {
		return
	}
	report := stalled(pending, now, w.limits)
	var b strings.Builder
	for _, op := range report.Ops {
		if op.Late {
			fmt.Fprint(&b, op.Group, op.Name, op.Over, op.Missing)
		}
	}
	if b.String() != w.reported {
		w.reported = b.String()
		w.out.Write(report)
	}
}

// pending lists what the engine has open, and what ranks wait for without it.
func (w *Watch) pending(now time.Time) []collective.Stall {
	open := slices.DeleteFunc(w.engine.Pending(now), func(s collective.Stall) bool {
		return strings.HasPrefix(s.Name, watchPrefix)
	})
	return slices.Concat(open, w.sessions.Held(open), w.sessions.Waiting(now))
}

// Answer reports all operations to the launcher, which has asked.
func (w *Watch) Answer() {
	now := time.Now()
	report := stalled(w.pending(now), now, w.limits)
	report.Asked = true
	w.out.Write(report)
}

// stalled makes a report of what the engine has open, oldest first.
func stalled(open []collective.Stall, now time.Time, l limits) *wire.Stalled {
	report := &wire.Stalled{}
	if len(open) > maxReported {
		report.More = len(open) - maxReported
		open = open[:maxReported]
	}
	for _, s := range open {
		age := now.Sub(s.Since)
		op := wire.Waiting{Kind: s.Kind.String(), Name: s.Name, Group: s.Group, AgeMS: age.Milliseconds(),
			Late: l.warn > 0 && age >= l.warn, Over: l.giveUp > 0 && age >= l.giveUp}
		for _, a := range s.Missing {
			op.Missing = append(op.Missing, wire.Missing{Host: a.Host, Ranks: a.Ranks})
		}
		report.Ops = append(report.Ops, op)
	}
	if l.warn > 0 {
		markCrossed(report.Ops)
	}
	return report
}

// markCrossed marks operations as late in which ranks wait for each other. The ranks may still meet, if one of them
// can go on without its operation, so the operations do not fail.
func markCrossed(ops []wire.Waiting) {
	old := slices.Clone(ops)
	for i := range old {
		if old[i].AgeMS < crossedWarning.Milliseconds() {
			old[i].Missing = nil
		}
	}
	for _, crossing := range wire.Crossings(old) {
		for _, c := range crossing {
			ops[c.Op].Late = true
		}
	}
}

// GiveUp fails everything that ranks of this host wait for.
func (w *Watch) GiveUp(m *wire.GiveUp) {
	failure := func(text string) error { return &collective.Error{Code: collective.CodeShutdown, Text: text} }
	why := map[session.Subject]error{}
	for _, each := range m.Each {
		why[session.Subject{Group: each.Group, Name: each.Name}] = failure(each.Text)
	}
	w.sessions.GiveUp(failure(cmp.Or(m.Text, "operations were given up")), why)
}
