package top

import (
	"cmp"
	"slices"

	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// row is a rank, or a host with the sum of its ranks.
type row struct {
	host      string
	rank      int    // -1 for a host
	ranks     string // of a host, "0-3"
	pid       int
	cpu       float64 // CPUs in use, negative if unknown
	rss       int64
	processes int
	step      int64   // length of the last step in µs, 0 if unknown
	shares    *shares // nil if unknown
	sends     float64 // bytes a second, of a host
	state     string
}

// shares are parts of the time that was counted: computing, data, communication and others.
type shares [4]float64

// sharesOf returns the shares of a time that was counted; nil if nothing was.
func sharesOf(s wire.Split) *shares {
	if s.Elapsed <= 0 {
		return nil
	}
	var of shares
	for i, t := range []int64{s.Computing(), s.Data, s.Communication, s.Others} {
		of[i] = min(float64(max(t, 0))/float64(s.Elapsed), 1)
	}
	return &of
}

// mean returns the mean of the shares that are known, nil if none are.
func mean(all []*shares) *shares {
	all = slices.DeleteFunc(all, func(s *shares) bool { return s == nil })
	if len(all) == 0 {
		return nil
	}
	var of shares
	for _, s := range all {
		for i := range of {
			of[i] += s[i] / float64(len(all))
		}
	}
	return &of
}

// latest returns the last sample and the one that rates are taken from.
func (m Model) latest() (now, before sample) {
	if len(m.samples) == 0 {
		return sample{}, sample{}
	}
	return m.samples[len(m.samples)-1], m.samples[0]
}

// earlier returns the ranks of a sample by their number and process.
func (s sample) earlier() map[[2]int]jobs.RankStatus {
	of := map[[2]int]jobs.RankStatus{}
	for _, r := range s.state.Ranks {
		of[[2]int{r.Rank, r.PID}] = r
	}
	return of
}

// steps returns how many steps the rank has taken that has taken most.
func (s sample) steps() (most int64) {
	for _, r := range s.state.Ranks {
		if r.Split != nil {
			most = max(most, r.Split.Steps)
		}
	}
	return most
}

// sent returns how many bytes all hosts have sent.
func (s sample) sent() (sum uint64) {
	for _, h := range s.state.Hosts {
		sum += h.SentBytes
	}
	return sum
}

// since returns the split of a rank after an earlier sample.
func since(now jobs.RankStatus, before jobs.RankStatus) (wire.Split, bool) {
	if now.Split == nil {
		return wire.Split{}, false
	}
	if before.Split != nil && before.Split.Elapsed > now.Split.Elapsed {
		before.Split = nil // the counters began anew
	}
	return now.Split.Since(before.Split), true
}

// ranks returns a row for each rank.
func ranks(now, before sample) (out []row) {
	old := before.earlier()
	for _, r := range now.state.Ranks {
		was := old[[2]int{r.Rank, r.PID}]
		x := row{host: r.Host, rank: r.Rank, pid: r.PID, cpu: r.CPUs(was), rss: r.RSS, processes: r.Processes, state: r.State}
		if s, ok := since(r, was); ok {
			x.step, x.shares = r.Split.Step, sharesOf(s)
		}
		out = append(out, x)
	}
	return out
}

// rows returns all rows in their order: ranks by their number, all else from the largest on.
func (m Model) rows() (out []row) {
	on, edges := map[string][]row{}, m.edges()
	for _, r := range ranks(m.latest()) {
		if m.shows(r) {
			on[r.host] = append(on[r.host], r)
		}
	}
	order := func(a, b row) int { return cmp.Or(columns[m.by].compare(a, b), cmp.Compare(a.rank, b.rank)) }
	var hosts []row
	for _, name := range m.hosts() {
		if of := on[name]; of != nil {
			hosts = append(hosts, sumOf(name, of, edges[name].rate))
		}
	}
	if m.by != byRank { // else they are in the order of the ring
		slices.SortStableFunc(hosts, order)
	}
	for _, h := range hosts {
		out = append(out, h)
		if !m.folds() {
			slices.SortStableFunc(on[h.host], order)
			out = append(out, on[h.host]...)
		}
	}
	return out
}

// hosts returns the names of all hosts, as the ring passes them.
func (m Model) hosts() (names []string) {
	now, _ := m.latest()
	seen := map[string]bool{}
	add := func(name string) {
		if name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	next := map[string]string{}
	for _, h := range now.state.Hosts {
		next[h.Name] = h.Next
	}
	for _, h := range now.state.Hosts {
		for at := h.Name; at != "" && !seen[at]; at = next[at] {
			add(at)
		}
	}
	for _, r := range now.state.Ranks { // of hosts that have left
		add(r.Host)
	}
	return names
}

// sumOf sums up the ranks of a host.
func sumOf(name string, of []row, sends float64) row {
	sum := row{host: name, rank: -1, cpu: -1, sends: sends}
	var numbers []int
	var parts []*shares
	states := map[string]int{}
	for _, r := range of {
		numbers = append(numbers, r.rank)
		sum.rss += r.rss
		sum.processes += r.processes
		sum.step = max(sum.step, r.step)
		states[r.state]++
		if r.cpu >= 0 {
			sum.cpu = max(sum.cpu, 0) + r.cpu
		}
		parts = append(parts, r.shares)
	}
	slices.Sort(numbers)
	sum.ranks, sum.shares = topology.Ranges(numbers), mean(parts)
	if len(states) == 1 {
		sum.state = of[0].state
	}
	return sum
}
