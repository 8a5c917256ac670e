package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
)

// Signs are wire.Signs with methods of this package.
type Signs wire.Signs

// Link is what a host sees of its link to another one.
type Link struct {
	Peer   string `json:"peer"`
	Window int64  `json:"window_us"` // length of the look
	Sent   int64  `json:"sent"`      // bytes that the peer has acknowledged meanwhile
	Lost   int64  `json:"lost"`      // packets that the kernel sent again in the last LostMS milliseconds
	LostMS int64  `json:"lost_ms,omitempty"`
	LostOf int64  `json:"lost_of,omitempty"` // bytes that the peer acknowledged in that time
	Losing bool   `json:"losing,omitempty"`  // it lost packets in most seconds of that time
	Waits  int64  `json:"waits"`             // segments that are not acknowledged
	RTT    int64  `json:"rtt_us"`
	Down   bool   `json:"down,omitempty"` // it has no connection
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
	turns = 50
	// badClock is how far clocks may differ before that is worth a word, in microseconds.
	badClock = 2e6
)

// perSecond is a count of the look for each second of it.
func (s *Signs) perSecond(n int64) float64 { return float64(n) * 1e6 / float64(max(s.Window, 1)) }

func (s *Signs) share(us int64) float64 { return float64(us) / float64(max(s.Window, 1)) }

// hindrance describes what keeps a rank from going on, "" if nothing shows. at is where its main thread is.
func (f *Finding) hindrance(at string) string {
	s := f.Signs
	if s == nil {
		return ""
	}
	waits := strings.HasPrefix(f.State, "waits for another thread")
	switch {
	case s.Stuck != "" && (blocked(f.State) || idle(s)):
		return "waits for the file " + s.Stuck + after(at, ", at ")
	case s.perSecond(s.Faults) >= muchFaults:
		text := fmt.Sprintf("waits for its memory to come from disk, %.0f pages per second", s.perSecond(s.Faults))
		if s.Swapped > 0 {
			text += fmt.Sprintf(" (%d MiB are in swap)", s.Swapped>>20)
		} else {
			text += " (its memory limit, or the machine, is too small)"
		}
		return text + after(at, ", at ")
	case len(s.Dead) > 0:
		return "goes on without a process that it started and that died: " + strings.Join(s.Dead, ", ") + after(at, "; it is at ")
	case waits && s.perSecond(s.Switches) >= turns && s.share(s.Main) < 0.5:
		return "waits for Python's interpreter lock, which another of its threads holds" + holder(f.Stack)
	case waits && idle(s) && deadlocked(f.Stack) != "":
		return "is in a deadlock: " + deadlocked(f.Stack)
	case s.Full != "":
		return fmt.Sprintf("writes to a file system that is full, %s", s.Full) + after(at, ", at ")
	case s.share(s.Throttled) >= heldBack:
		return fmt.Sprintf("is held back by its control group, which allows it %.2g CPUs (%.0f %% of the time it may not run)", s.Quota,
			100*min(s.share(s.Throttled), 1)) + after(at, ", at ")
	case s.share(s.Stolen) >= stolenShare && !idle(s):
		return fmt.Sprintf("gets too little CPU time: the hypervisor gives %.0f %% of it to other machines", 100*s.share(s.Stolen)) + after(at, ", at ")
	case s.share(s.Ready) >= crowded && s.Ready > s.CPU/2:
		rival := "processes that are not visible here use its CPUs"
		if s.Rival != "" {
			rival = fmt.Sprintf("%s uses %.1f CPUs", s.Rival, s.share(s.RivalCPU))
		}
		return fmt.Sprintf("gets too little CPU time: %s (%.0f %% of the time it is ready and may not run)", rival,
			100*min(s.share(s.Ready), 1)) + after(at, ", at ")
	}
	return ""
}

// idle reports whether a process did nothing during the look.
func idle(s *Signs) bool { return s.share(s.CPU) < 0.05 && s.perSecond(s.Switches) < turns }

// blocked reports whether a state is one in which a process waits for a file.
func blocked(state string) bool {
	for _, part := range []string{"file", "disk", "stuck in the kernel"} {
		if strings.Contains(state, part) {
			return true
		}
	}
	return false
}

// threads returns the frames of each thread of a stack that faulthandler wrote, the main thread last.
func threads(stack string) (all [][]Frame) {
	for line := range strings.Lines(stack) {
		if begins(line) {
			all = append(all, nil)
			continue
		}
		if m := frameLine.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil && len(all) > 0 {
			all[len(all)-1] = append(all[len(all)-1], Main(line)...)
		}
	}
	return all
}

// user returns where a thread is in the user's code, "" if it is in none, and whether that is its innermost frame.
func user(frames []Frame) (at string, innermost bool) {
	for i, frame := range frames {
		if !frame.library() {
			return frame.short(), i == 0
		}
	}
	return "", false
}

// holder names where another thread than the main one is in the user's code.
func holder(stack string) string {
	all := threads(stack)
	for _, frames := range all[:max(len(all)-1, 0)] {
		if at, innermost := user(frames); at != "" && innermost {
			return ", at " + at
		}
	}
	return ""
}

// deadlocked returns where threads wait for each other: the main thread waits in the user's code for a lock, and so does
// another one. "" if none does.
func deadlocked(stack string) string {
	all := threads(stack)
	if len(all) < 2 {
		return ""
	}
	main, innermost := user(all[len(all)-1])
	if main == "" || !innermost {
		return ""
	}
	var others []string
	for _, frames := range all[:len(all)-1] {
		if at, innermost := user(frames); at != "" && innermost {
			others = append(others, at)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("its main thread waits for a lock at %s, another thread at %s", main, strings.Join(others[:min(len(others), 3)], " and at "))
}

// edge is a link as the host at one end sees it.
type edge struct {
	from string
	Link
}

// edges returns the links of all hosts, each once.
func edges(all []Finding) (edges []edge) {
	for _, f := range all {
		for _, l := range f.Links {
			e := edge{f.Host, l}
			if !slices.ContainsFunc(edges, func(o edge) bool { return o.from == e.from && o.Peer == e.Peer }) {
				edges = append(edges, e)
			}
		}
	}
	return edges
}

// network names the link that is slow or loses packets, "" if none shows.
func network(all []Finding) string {
	edges := slices.DeleteFunc(edges(all), func(e edge) bool { return !e.Losing && e.Waits == 0 && !e.Down })
	if len(edges) == 0 {
		return ""
	}
	rate := func(e edge) float64 { return float64(e.Sent) / float64(max(e.Window, 1)) }
	if i := slices.IndexFunc(edges, func(e edge) bool { return e.Down }); i >= 0 {
		return fmt.Sprintf("the link from %s to %s has no connection", edges[i].from, edges[i].Peer)
	}
	if text := losing(all); text != "" {
		return text
	}
	worst := slices.MinFunc(edges, func(a, b edge) int { return cmp.Compare(rate(a), rate(b)) })
	trip := ""
	if worst.RTT > 0 { // unknown over RDMA
		trip = fmt.Sprintf(", round trip %v", rounded(worst.RTT))
	}
	return fmt.Sprintf("the slowest link is from %s to %s: %.2g MB/s%s: look at the speed of both NICs and at what else uses them",
		worst.from, worst.Peer, rate(worst), trip)
}

// losing names the path that loses most packets, "" if none does.
func losing(all []Finding) string {
	edges := slices.DeleteFunc(edges(all), func(e edge) bool { return !e.Losing })
	if len(edges) == 0 {
		return ""
	}
	share := func(e edge) float64 { return float64(e.Lost) / float64(max(e.LostOf, 1)) }
	worst := slices.MaxFunc(edges, func(a, b edge) int { return cmp.Compare(share(a), share(b)) })
	return fmt.Sprintf("the path from %s to %s loses packets: %d were sent again within %v, while %.2g MB arrived: look for a bad cable, port or NIC",
		worst.from, worst.Peer, worst.Lost, (time.Duration(worst.LostMS) * time.Millisecond).Round(time.Second), float64(worst.LostOf)/1e6)
}

// clocks names the hosts whose clocks are far from the launcher's.
func clocks(all []Finding) string {
	var parts []string
	var seen []string
	for _, f := range all {
		if f.Ahead < badClock && f.Ahead > -badClock || slices.Contains(seen, f.Host) {
			continue
		}
		seen = append(seen, f.Host)
		d, how := f.Ahead, "ahead of"
		if d < 0 {
			d, how = -d, "behind"
		}
		parts = append(parts, fmt.Sprintf("the clock of %s is %v %s this machine's", f.Host, (time.Duration(d)*time.Microsecond).Round(time.Second), how))
	}
	return strings.Join(parts, ", ")
}
