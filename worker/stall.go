package worker

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
	// stallWarning is how long an operation may wait for a rank before somebody is told, unless the job says
	// otherwise.
	stallWarning = 60 * time.Second
	// crossedWarning is how long ranks may wait for each other in different operations of one name.
	crossedWarning = time.Second
	// maxReported bounds the operations of a report.
	maxReported = 1000
)

// stallLimits say when a waiting operation is late, and when it is over; 0 is never.
type stallLimits struct {
	warn, giveUp time.Duration
}

// readStallLimits reads Horovod's variables for it from the environment of ranks.
func readStallLimits(env []string) stallLimits {
	seconds := func(name string, otherwise time.Duration) time.Duration {
		value, ok := rankenv.Lookup(env, name)
		n, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || n > float64(1<<31) {
			return otherwise
		}
		return time.Duration(max(n, 0) * float64(time.Second))
	}
	l := stallLimits{seconds("HOROVOD_STALL_CHECK_TIME_SECONDS", stallWarning), seconds("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0)}
	if off, _ := rankenv.Lookup(env, "HOROVOD_STALL_CHECK_DISABLE"); off != "" && off != "0" {
		l.warn = 0
	}
	if l.giveUp < l.warn || l.warn == 0 {
		l.giveUp = 0 // as Horovod has it
	}
	return l
}

// interval is how often one looks: operations are as old as the looks that found them.
func (l stallLimits) interval() time.Duration {
	if l.warn == 0 {
		return time.Hour
	}
	return min(max(l.warn/10, 50*time.Millisecond), time.Second)
}

// stallWatch looks after operations that wait.
type stallWatch struct {
	limits stallLimits
	env    map[string]string // variables that ranks set by themselves
	tick   *time.Ticker
	said   string // the last report, without what changes with time
}

// setEnv takes over a variable that a rank has set in its process before it joined.
func (d *daemon) setEnv(name, value string) {
	if !strings.HasPrefix(name, "HOROVOD_STALL_") {
		return // nothing else is the daemon's business
	}
	if d.stalls.env == nil {
		d.stalls.env = map[string]string{}
	}
	d.stalls.env[name] = value
	d.watchStalls()
}

// watchStalls sets the watch going.
func (d *daemon) watchStalls() {
	env := d.job.Env
	for name, value := range d.stalls.env {
		env = append(env[:len(env):len(env)], name+"="+value)
	}
	d.stalls.limits = readStallLimits(env)
	d.stalls.tick.Reset(d.stalls.limits.interval())
}

// checkStalls tells the launcher when the operations that are late are others than before.
func (d *daemon) checkStalls(now time.Time) {
	if d.stalls.limits.warn == 0 || d.pauses.Paused() {
		return // nobody waits for a rank in a pause
	}
	report := stalled(d.pending(now), now, d.stalls.limits)
	var b strings.Builder
	for _, op := range report.Ops {
		if op.Late {
			fmt.Fprint(&b, op.Group, op.Name, op.Over, op.Missing)
		}
	}
	if b.String() != d.stalls.said {
		d.stalls.said = b.String()
		d.out.Write(report)
	}
}

// pending lists what the engine has open, and what ranks wait for without it.
func (d *daemon) pending(now time.Time) []collective.Stall {
	open := d.engine.Pending(now)
	return slices.Concat(open, d.sessions.Held(open), d.sessions.Waiting(now))
}

// answerStalled tells the launcher about all operations.
func (d *daemon) answerStalled() {
	now := time.Now()
	report := stalled(d.pending(now), now, d.stalls.limits)
	report.Asked = true
	d.out.Write(report)
}

// stalled makes a report of what the engine has open, oldest first.
func stalled(open []collective.Stall, now time.Time, l stallLimits) *wire.Stalled {
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

// markCrossed has operations count as late in which ranks wait for each other. They may still meet, if each of them does not
// wait for its operation but for something else; so this is no reason to fail them.
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

// giveUp fails everything that ranks of this host wait for.
func (d *daemon) giveUp(m *wire.GiveUp) {
	failure := func(text string) error { return &collective.Error{Code: collective.CodeShutdown, Text: text} }
	why := map[session.Subject]error{}
	for _, each := range m.Each {
		why[session.Subject{Group: each.Group, Name: each.Name}] = failure(each.Text)
	}
	d.sessions.GiveUp(failure(cmp.Or(m.Text, "operations were given up")), why)
}
