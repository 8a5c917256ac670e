package why

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
)

// Signs are wire.Signs with methods of this package.
type Signs wire.Signs

// Link is what a host sees of its link to another one.
type Link struct {
	Peer string `json:"peer"`
	wire.LinkState
}

const (
	// muchFaults is how many pages per second come from disk for a process that memory is too small for.
	muchFaults = 50
	// A process is slowed down if its control group keeps it from running during the share heldBack of the time, or if
	// one of its threads waits for a CPU during the share crowded.
	heldBack = 0.2
	crowded  = 0.25
	// stolenShare is the same for a hypervisor.
	stolenShare = 0.2
	// turns is how often per second a thread wakes that waits for Python's interpreter lock: Python's interval is 5 ms.
	turns = 100
	// badClock is how far clocks may differ before that is worth a word, in microseconds.
	badClock = 2e6
)

// perSecond is a count of the look for each second of it.
func (s *Signs) perSecond(n int64) float64 { return float64(n) * 1e6 / float64(max(s.Window, 1)) }

func (s *Signs) share(us int64) float64 { return float64(us) / float64(max(s.Window, 1)) }

// cause is what may keep a rank from going on.
type cause struct {
	is    bool
	share float64 // of the look that it explains
	slows bool    // the rank goes on, more slowly
	text  string
	at    string
}

// cause returns what explains most of the look. Of several that explain what the main thread waits for, at least half of the
// time, the first one is the most special. What slows a rank down explains no wait that is long against a step that is slowed down so much.
func (f *Finding) cause() (best cause) {
	s, at, state := cmp.Or(f.Signs, &Signs{}), f.Top(), f.state()
	waits := 1 - s.share(s.Main+s.Ready) // neither running nor ready
	lock, faults, ready := strings.HasPrefix(state, "waits for another thread"), s.perSecond(s.Faults), s.Ready-s.Throttled
	main, others := inUser(f.Stack)
	other := strings.Join(others[:min(len(others), 3)], " and at ")
	memory, loader, dead := "(its memory limit, or the machine, is too small)", at, strings.Join(s.Dead, ", ")
	if s.Swapped > 0 {
		memory = fmt.Sprintf("(%d MiB are in swap)", s.Swapped>>20)
	}
	if !loads(f.Stack) { // it shows what came after the wait
		loader = ""
	}
	percent := func(us int64) string { return fmt.Sprintf("%.0f %% of", 100*min(s.share(us), 1)) }
	for _, c := range []cause{
		{debugged(f.Stack), 1, false, "is in a debugger", after(at, " at ")},
		{faults >= muchFaults, 1 - s.share(s.Main), true,
			fmt.Sprintf("waits for its memory to come from disk, %.0f pages per second %s", faults, memory), after(at, ", at ")},
		{kept(state), waits, false, state, after(s.Stuck, ": ") + after(at, ", at ")},
		{s.Stuck != "" && (blocked(state) || idle(s)), waits, false, "waits for the file " + s.Stuck, after(at, ", at ")},
		{lock && s.perSecond(s.Switches) >= turns && other != "", waits, false,
			"waits for Python's interpreter lock, which another of its threads holds", ", at " + other},
		{lock && idle(s) && main != "" && other != "", waits, false,
			fmt.Sprintf("is in a deadlock: its main thread waits for a lock at %s, another thread at %s", main, other), ""},
		{f.Activity == "waits for data", max(waits, s.share(s.Main-s.Ready)), false, "waits for its data loader" + f.since(),
			after(loader, " at ") + f.beside() + after(dead, "; a process that it started has died: ")},
		{dead != "", waits, false, "goes on without a process that it started and that died: " + dead, after(at, "; it is at ")},
		{s.Full != "", waits, false, "writes to a file system that is full, " + s.Full, after(at, ", at ")},
		{s.share(s.Throttled) >= heldBack, s.share(s.Throttled), true, fmt.Sprintf("is held back by its control group, "+
			"which allows it %v CPUs (%s the time it may not run)", short(s.Quota), percent(s.Throttled)), after(at, ", at ")},
		{s.share(s.Stolen) >= stolenShare && !idle(s), s.share(s.Stolen), true, fmt.Sprintf("gets too little CPU time: "+
			"the hypervisor gives %s it to other machines", percent(s.Stolen)), after(at, ", at ")},
		{s.share(ready) >= crowded && ready > s.CPU/2, s.share(ready), true, fmt.Sprintf("gets too little CPU time: "+
			"%s (%s the time it is ready and may not run)", s.rival(), percent(s.Ready)), after(at, ", at ")},
	} {
		slowed := float64(f.Step) / max(1-c.share, 0.01)
		if c.is && c.share > best.share && (!c.slows && c.share >= 0.5 || c.slows && 2*slowed >= float64(f.Waited)) {
			best = c
		}
	}
	return best
}

func (s *Signs) rival() string {
	if s.Rival == "" {
		return "processes that are not visible here use its CPUs"
	}
	return fmt.Sprintf("%s uses %.1f CPUs", s.Rival, s.share(s.RivalCPU))
}

// crowding is the share of the time in which a rank would run that it may not.
func (f *Finding) crowding() float64 {
	s := cmp.Or(f.Signs, &Signs{})
	return float64(s.Ready) / float64(max(s.Ready+s.CPU, 1))
}

// shared reports whether a rank is late for a lack of CPU time that others have too: the whole machine is busy. Without a
// sign of another cause that is why, even if it has a CPU at the moment.
func shared(f Finding, all []Finding) bool {
	c := f.cause()
	return (c.share == 0 || strings.HasPrefix(c.text, "gets too little CPU time")) && slices.ContainsFunc(all, func(o Finding) bool {
		return o.Rank != f.Rank && o.crowding() >= max(f.crowding()/2, crowded)
	})
}

// slowed reports whether something else than a lack of CPU time for its work keeps a rank from running, most of the time.
func (f *Finding) slowed() bool {
	c := f.cause()
	return c.slows && c.share >= 0.5 && (f.crowding() < 0.5 || !strings.HasPrefix(c.text, "gets too little CPU time"))
}

// stuck reports whether a rank does nothing, for long, or is slowed down much. One in an operation waits for others or for data, if
// its daemon knows the operation.
func (f *Finding) stuck() bool {
	if f.Activity == inOperation {
		return f.slowed() || f.Stays && len(f.Does) == 0
	}
	c := f.cause()
	return f.slowed() || f.Stays && (c.share > 0 && !c.slows || f.Signs != nil && idle(f.Signs))
}

// idle reports whether a process did nothing during the look, and had nothing to do.
func idle(s *Signs) bool {
	return s.share(s.CPU) < 0.05 && s.share(s.Ready) < crowded && s.perSecond(s.Switches) < turns
}

// blocked reports whether a state is one in which a process waits for a file.
func blocked(state string) bool {
	return kept(state) || strings.Contains(state, "file") || strings.Contains(state, "disk")
}

// kept reports whether a state is one that is most telling by itself.
func kept(state string) bool {
	return strings.Contains(state, "file server") || strings.Contains(state, "file system") || strings.Contains(state, "stuck in the kernel")
}

// inUser returns where the main thread and others are whose innermost frame is in the user's code: they may wait for locks.
func inUser(stack string) (main string, others []string) {
	all := threads(stack)
	for i, frames := range all {
		switch {
		case len(frames) == 0 || frames[0].library():
		case i == len(all)-1:
			main = frames[0].short()
		default:
			others = append(others, frames[0].short())
		}
	}
	return main, others
}

// rate is in bytes per microsecond.
func (l Link) rate() float64 { return float64(l.Sent) / float64(max(l.Window, 1)) }

// merit is least for a link without a connection, then for the highest share of losses, then for the lowest rate.
func (l Link) merit() float64 {
	switch {
	case l.Down:
		return -2
	case l.Losing:
		return -float64(l.Lost) / float64(max(l.LostOf, l.Lost, 1))
	}
	return l.rate()
}

// short rounds a number so that people read it.
func short(x float64) float64 {
	if x >= 10 {
		return math.Round(x)
	}
	return math.Round(100*x) / 100
}

// network names the link that is slow or loses packets, "" if none shows.
func network(all []Finding) string {
	from, worst := "", Link{}
	for _, f := range all {
		for _, l := range f.Links {
			if (l.Losing || l.Waits > 0 || l.Down) && (from == "" || l.merit() < worst.merit()) {
				from, worst = f.Host, l
			}
		}
	}
	switch {
	case from == "":
		return ""
	case worst.Down:
		return fmt.Sprintf("the link from %s to %s has no connection", from, worst.Peer)
	case worst.Losing:
		return fmt.Sprintf("the path from %s to %s loses packets: it sent %d again within %v, while %v MB arrived: "+
			"look for what limits its rate or drops packets (tc -s qdisc), then for a bad cable, port or NIC", from, worst.Peer, worst.Lost,
			(time.Duration(worst.LostMS) * time.Millisecond).Round(time.Second), short(float64(worst.LostOf)/1e6))
	default:
		trip := ""
		if worst.RTT >= 5000 { // else it does not matter
			trip = fmt.Sprintf(", round trip %v", rounded(worst.RTT))
		}
		return fmt.Sprintf("the slowest link is from %s to %s: %v MB/s%s: look at the speed of both NICs and at what else uses them",
			from, worst.Peer, short(worst.rate()), trip)
	}
}

// clocks names the hosts whose clocks are far from the launcher's.
func clocks(all []Finding) string {
	var parts []string
	for _, host := range hosts(all) {
		d, how := all[slices.IndexFunc(all, func(f Finding) bool { return f.Host == host })].Ahead, "ahead of"
		if d < 0 {
			d, how = -d, "behind"
		}
		if d >= badClock {
			parts = append(parts, fmt.Sprintf("the clock of %s is %v %s this machine's", host, (time.Duration(d)*time.Microsecond).Round(time.Second), how))
		}
	}
	return strings.Join(parts, ", ")
}
