package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// What the recorded operations show about ranks: which one calls other operations than it did before, and which one is
// mostly the last.

// Learn fills in what the operations of all hosts show about the ranks.
func Learn(all []Finding, ops []Op) {
	h := newHistory(ops)
	for i := range all {
		f := &all[i]
		f.Diverged = ""
		if f.Behind && f.Waits {
			f.Diverged = h.diverged(f)
		}
		f.Late = nil
	}
	h.minority(all)
	lates, moving := h.late()
	for i := range all {
		all[i].Moving = moving
	}
	for rank, late := range lates {
		for i := range all {
			if all[i].Rank == rank && !all[i].Ended {
				all[i].Late = late
			}
		}
	}
}

// Lateness is how often a rank was the last one.
type Lateness struct {
	Times int   `json:"times"` // so many operations waited for it
	Of    int   `json:"of"`    // of so many
	Mean  int64 `json:"mean_us"`
}

// key identifies an operation's name.
type key struct {
	epoch, group uint32
	name         string
}

func (o *Op) key() key { return key{o.Epoch, o.Group, o.Name} }

// called is the operation in words.
func (o *Op) called() string { return fmt.Sprintf("%s %q", cmp.Or(o.Kind, "operation"), o.Name) }

// history are the operations of all hosts.
type history struct {
	ops    []Op
	latest map[key]uint64 // the number of the last one that is done, on the host that saw it first
	rounds map[key]int    // how often it was done there
	open   map[key]*Op    // not done, with all that the hosts know to be missing
}

func newHistory(ops []Op) *history {
	h := &history{ops: ops, latest: map[key]uint64{}, rounds: map[key]int{}, open: map[key]*Op{}}
	host := ""
	for i := range ops {
		o := &ops[i]
		if host == "" {
			host = o.Host
		}
		switch {
		case o.Outcome == "open":
			h.merge(o)
		case o.Outcome == "done" && o.Host == host: // one host's order: numbers of others differ
			h.latest[o.key()] = o.Number
			h.rounds[o.key()]++
		}
	}
	return h
}

// merge adds what a host knows of an open operation. A host knows best about its own ranks.
func (h *history) merge(o *Op) {
	known := h.open[o.key()]
	if known == nil {
		known = &Op{Name: o.Name, Epoch: o.Epoch, Group: o.Group}
		h.open[o.key()] = known
	}
	known.Kind = cmp.Or(known.Kind, o.Kind)
	for _, a := range o.Missing {
		i := slices.IndexFunc(known.Missing, func(k Absent) bool { return k.Host == a.Host })
		switch {
		case i < 0:
			known.Missing = append(known.Missing, a)
		case a.Host == o.Host:
			known.Missing[i] = a
		}
	}
	if o.First > 0 && !slices.ContainsFunc(o.Missing, func(a Absent) bool { return a.Host == o.Host }) {
		known.Missing = slices.DeleteFunc(known.Missing, func(a Absent) bool { return a.Host == o.Host })
	}
}

func (o *Op) lacks(f *Finding) bool {
	return slices.ContainsFunc(o.Missing, func(a Absent) bool { return a.Host == f.Host && slices.Contains(a.Ranks, f.Rank) })
}

// pairs returns the operations that a rank is in, and those in which others wait for it.
func (h *history) pairs(f *Finding) (in, lacks []*Op) {
	for _, k := range slices.SortedFunc(maps.Keys(h.open), func(a, b key) int { return cmp.Compare(a.name, b.name) }) {
		switch o := h.open[k]; {
		case o.lacks(f):
			lacks = append(lacks, o)
		case len(o.Missing) > 0:
			in = append(in, o)
		}
	}
	return in, lacks
}

// diverged describes how a rank departs from its former order of operations, if others wait for it and it waits for
// others. It returns "" if the rank keeps that order, or if the operations are new.
func (h *history) diverged(f *Finding) string {
	in, lacks := h.pairs(f)
	for _, a := range lacks {
		for _, b := range in {
			was, known := h.latest[a.key()]
			is, repeated := h.latest[b.key()]
			switch {
			case known && repeated && was < is:
				return fmt.Sprintf("called %s before %s, which came first until now: it left that call out or changed the order", b.called(), a.called())
			case known && !repeated:
				return fmt.Sprintf("went on to %s after %s of %s, which others call once more: it has fewer batches than the others", b.called(), times(h.rounds[a.key()]), a.called())
			}
		}
	}
	return ""
}

func times(n int) string {
	if n == 1 {
		return "one round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// minority decides which ranks have diverged. Where most of them went on to another operation, it names those that did
// not. Where the operations are new, it names those that call another one than most.
func (h *history) minority(all []Finding) {
	crossed, diverged := 0, 0
	for i := range all {
		if all[i].Behind && all[i].Waits {
			crossed++
			if all[i].Diverged != "" {
				diverged++
			}
		}
	}
	if crossed < 3 || diverged > 0 && 2*diverged <= crossed {
		return
	}
	for i := range all {
		f := &all[i]
		if !f.Behind || !f.Waits {
			continue
		}
		in, lacks := h.pairs(f)
		switch {
		case diverged > 0 && f.Diverged != "":
			f.Diverged = ""
		case diverged > 0 && len(in) > 0 && len(lacks) > 0:
			f.Diverged = fmt.Sprintf("calls %s once more, when others went on to %s: it has more batches than the others", in[0].called(), lacks[0].called())
		case len(in) > 0 && len(lacks) > 0 && 2*h.inSame(all, in[0]) < crossed:
			f.Diverged = fmt.Sprintf("calls %s where most others call %s", in[0].called(), lacks[0].called())
		}
	}
}

// inSame counts the ranks in an operation.
func (h *history) inSame(all []Finding, o *Op) (n int) {
	for i := range all {
		if all[i].Waits && !o.lacks(&all[i]) {
			n++
		}
	}
	return n
}

const (
	// recent is how many of the latest operations are judged.
	recent = 200
	// leastLate is how many operations a judgement takes at least.
	leastLate = 8
	// A rank is late if this share of all waiting is for it, and if others wait for it during this share of the time.
	mostlyLate = 0.6
	lateShare  = 0.15
)

// late returns the ranks that others mostly wait for. It compares no clocks: each host knows how long it waited for the
// others, so the late rank is the last one on the host that waited least. moving is the share of the time during which
// data was under way.
func (h *history) late() (all map[int]*Lateness, moving float64) {
	byUse := map[key][][]*Op{} // by name, the uses of an operation, the latest first; each has one Op of each host
	index := map[string]map[key]int{}
	for i := len(h.ops) - 1; i >= 0; i-- {
		o := &h.ops[i]
		if o.Outcome != "done" || o.Last == 0 || o.Began == 0 {
			continue
		}
		if index[o.Host] == nil {
			index[o.Host] = map[key]int{}
		}
		n := index[o.Host][o.key()]
		index[o.Host][o.key()]++
		if n == len(byUse[o.key()]) {
			byUse[o.key()] = append(byUse[o.key()], nil)
		}
		if n < len(byUse[o.key()]) {
			byUse[o.key()][n] = append(byUse[o.key()][n], o)
		}
	}
	var uses [][]*Op
	for _, k := range slices.SortedFunc(maps.Keys(byUse), func(a, b key) int { return cmp.Compare(a.name, b.name) }) {
		for _, use := range byUse[k] {
			if len(use) == len(index) { // all hosts kept it
				uses = append(uses, use)
			}
		}
	}
	slices.SortStableFunc(uses, func(a, b []*Op) int { return cmp.Compare(b[0].Began, a[0].Began) })
	uses = uses[:min(len(uses), recent)]
	if len(uses) < leastLate {
		return nil, 0
	}
	all = map[int]*Lateness{}
	sums, total, busy := map[int]int64{}, int64(0), int64(0)
	begin, end := uses[0][0].First, uses[0][0].Ended
	for _, use := range uses {
		rank, by := latest(use)
		if all[rank] == nil {
			all[rank] = &Lateness{Of: len(uses)}
		}
		all[rank].Times++
		sums[rank] += by
		total += by
		if len(use) > 1 {
			busy += use[0].Ended - use[0].Began
		}
		begin, end = min(begin, use[0].First), max(end, use[0].Ended)
	}
	for rank, l := range all {
		l.Mean = sums[rank] / int64(l.Times)
		if float64(sums[rank]) < mostlyLate*float64(total) || float64(sums[rank]) < lateShare*float64(end-begin) {
			delete(all, rank)
		}
	}
	return all, float64(busy) / float64(max(end-begin, 1))
}

// latest returns the rank that a use of an operation waited for, and how long.
func latest(use []*Op) (rank int, by int64) {
	waited := func(o *Op) int64 {
		if o.Others == 0 {
			return 0
		}
		return o.Others - o.Last
	}
	last := slices.MinFunc(use, func(a, b *Op) int { return cmp.Compare(waited(a), waited(b)) })
	for _, o := range use {
		by = max(by, waited(o))
	}
	if last.FirstRank != last.LastRank {
		by = max(by, last.Last-last.First)
	}
	return last.LastRank, by
}

func (l *Lateness) String() string {
	return fmt.Sprintf("the last one in %d of %d operations, by %v on average", l.Times, l.Of, rounded(l.Mean))
}

// rounded is a time in microseconds as people read it.
func rounded(us int64) time.Duration {
	d := time.Duration(us) * time.Microsecond
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= 100*time.Millisecond:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	default:
		return d
	}
}
