// Package lag finds the ranks and the links that slow a job down. It is pure: what ranks and links have counted goes in,
// what changed comes out.
//
// Ranks of a data-parallel job step together. Of the time of a step, each rank counts what it waits for others and for
// data under way between hosts; the rest is its own. Each look compares the own times of the steps since the look before. A
// rank lags if its own time is far above that of most ranks in the last looks, 35 steps or more. One of them does not count,
// such as one with a step that saves a checkpoint. It no longer lags when the difference is less than half of that.
package lag

import (
	"math"
	"slices"
	"strconv"
	"time"
)

const (
	// A look comprises so many steps at least, and so many looks decide: all but one of them must agree.
	steps, looks = 5, 7
	// most is the share of a step that the own time of a rank may exceed that of most ranks by, and spread how many times
	// the spread of the ranks, which is the median of their differences.
	most, spread = 0.12, 3.0
	// A link lags if it carries less than slow of what most links do, while ranks wait for it for a share of waits.
	slow, waits = 1.0 / 3, 0.3
)

// Rank is what a rank has counted so far, in microseconds.
type Rank struct {
	Number                                              int
	Host                                                string
	Steps, Elapsed, Data, Others, Communication, Stolen int64 // Stolen is that of each CPU of its host
}

// Link is what the link to another host has carried so far, and for how many microseconds it was busy with that.
type Link struct {
	From, To    string
	Bytes, Busy int64
}

// Cause is what takes the time of a rank.
type Cause int

// Causes.
const (
	Computing Cause = iota
	Data            // it waits for its input
	Stolen          // the hypervisor gives its CPUs to other machines
	Carrying        // of a link
)

// Change is that a rank, or a link, lags, or no longer does.
type Change struct {
	Rank     int    // -1 for a link
	Host, To string // To is where a link leads
	Over     bool
	Cause    Cause
	// Own and Usual are what a step takes of the rank, and of most ranks. Stolen is a part of Own.
	Own, Usual, Stolen time.Duration
	// Speed and UsualSpeed are those of a link and of most links, in bytes a second.
	Speed, UsualSpeed float64
}

// Detector follows a job. The zero value is ready.
type Detector struct {
	epoch uint32
	ranks []Rank // at the last look
	links map[string]Link
	seen  []look
	told  map[string]bool
}

// look is what ranks and links did between two looks: times are for each step, in microseconds.
type look struct {
	step, waits               float64   // medians: the length of a step, and the share in which ranks wait for data under way
	usual                     float64   // own time
	excess, own, data, stolen []float64 // by rank; all but own beyond the median
	speed                     map[string]float64
}

// Take takes what all ranks and links of the world of an epoch have counted, ranks in the same order each time, and returns
// what changed. A new world begins a new window; what lagged in the one before, and is in it, is known.
func (d *Detector) Take(epoch uint32, ranks []Rank, links []Link) (changes []Change) {
	if epoch != d.epoch || !d.follows(ranks) {
		known := map[string]bool{}
		for _, r := range ranks {
			known[r.name()] = d.told[r.name()]
		}
		for _, l := range links {
			known[l.name()] = d.told[l.name()]
		}
		*d = Detector{epoch: epoch, told: known}
		d.begin(ranks, links)
		return nil
	}
	l, ok := d.since(ranks, links)
	if !ok {
		return nil
	}
	d.begin(ranks, links)
	d.seen = append(d.seen, l)
	if d.seen = d.seen[max(len(d.seen)-looks, 0):]; len(d.seen) < looks || len(ranks) < 2 {
		return nil
	}
	return append(d.lagging(ranks), d.slow(links)...)
}

// Drop begins a new window, as after something that disturbs all ranks.
func (d *Detector) Drop() { d.ranks, d.seen = nil, nil }

// follows reports whether all ranks have gone on since the last look.
func (d *Detector) follows(ranks []Rank) bool {
	return slices.EqualFunc(ranks, d.ranks, func(now, former Rank) bool {
		return now.Number == former.Number && now.Steps >= former.Steps && now.Elapsed >= former.Elapsed
	})
}

func (d *Detector) begin(ranks []Rank, links []Link) {
	d.ranks, d.links = slices.Clone(ranks), map[string]Link{}
	for _, l := range links {
		d.links[l.name()] = l
	}
}

// since returns the look at what followed the last one, false while a rank has taken too few steps.
func (d *Detector) since(ranks []Rank, links []Link) (l look, ok bool) {
	var all, shares []float64
	for i, r := range ranks {
		b := d.ranks[i]
		n := float64(r.Steps - b.Steps)
		if n < steps {
			return l, false
		}
		waited := float64(r.Communication - b.Communication)
		all, shares = append(all, float64(r.Elapsed-b.Elapsed)/n), append(shares, waited/float64(r.Elapsed-b.Elapsed))
		l.own = append(l.own, (float64(r.Elapsed-b.Elapsed-r.Others+b.Others)-waited)/n)
		l.data, l.stolen = append(l.data, float64(r.Data-b.Data)/n), append(l.stolen, float64(r.Stolen-b.Stolen)/n)
	}
	l.step, l.waits, l.usual = median(all), median(shares), median(l.own)
	l.excess, l.data, l.stolen = beyond(l.own), beyond(l.data), beyond(l.stolen)
	l.speed = map[string]float64{}
	for _, x := range links {
		if b := d.links[x.name()]; x.Busy > b.Busy && x.Bytes > b.Bytes {
			l.speed[x.name()] = 1e6 * float64(x.Bytes-b.Bytes) / float64(x.Busy-b.Busy)
		}
	}
	return l, len(ranks) > 0
}

// over returns the median of what the looks show.
func (d *Detector) over(show func(l look) float64) float64 { return median(d.each(show)) }

// but returns what all looks but one show at least, and at most.
func (d *Detector) but(show func(l look) float64) (least, greatest float64) {
	sorted := slices.Sorted(slices.Values(d.each(show)))
	return sorted[1], sorted[len(sorted)-2]
}

func (d *Detector) each(show func(l look) float64) (all []float64) {
	for _, l := range d.seen {
		all = append(all, show(l))
	}
	return all
}

// tells reports whether to tell a change: what is beyond the limit begins to lag, and what is within half of it ends to.
func (d *Detector) tells(name string, begins, ends bool) bool {
	if d.told[name] && ends || !d.told[name] && begins {
		d.told[name] = !d.told[name]
		return true
	}
	return false
}

// lagging returns the changes of ranks.
func (d *Detector) lagging(ranks []Rank) (changes []Change) {
	var excess, apart []float64
	for i := range ranks {
		x := d.over(func(l look) float64 { return l.excess[i] })
		excess, apart = append(excess, x), append(apart, math.Abs(x))
	}
	limit := max(most*d.over(func(l look) float64 { return l.step }), spread*median(apart))
	for i, r := range ranks {
		name := r.name()
		least, greatest := d.but(func(l look) float64 { return l.excess[i] })
		if !d.tells(name, least > limit, greatest < limit/2) {
			continue
		}
		c := Change{Rank: r.Number, Host: r.Host, Over: !d.told[name]}
		c.Own, c.Usual = micros(d.over(func(l look) float64 { return l.own[i] })), micros(d.over(func(l look) float64 { return l.usual }))
		data, stolen := d.over(func(l look) float64 { return l.data[i] }), d.over(func(l look) float64 { return l.stolen[i] })
		switch c.Stolen = micros(stolen); {
		case data > excess[i]/2:
			c.Cause = Data
		case stolen > excess[i]/3:
			c.Cause = Stolen
		}
		changes = append(changes, c)
	}
	return changes
}

// slow returns the changes of links. Where ranks hardly wait for data under way, a slow link does not matter.
func (d *Detector) slow(links []Link) (changes []Change) {
	matters := d.over(func(l look) float64 { return l.waits }) > waits
	var busy []Link
	var speeds []float64
	var at [][2]float64 // all looks but one, at least and at most
	for _, x := range links {
		speed := func(l look) float64 { return l.speed[x.name()] }
		if least, greatest := d.but(speed); least > 0 {
			busy, speeds, at = append(busy, x), append(speeds, d.over(speed)), append(at, [2]float64{least, greatest})
		}
	}
	if len(busy) < 3 { // which of two is slow?
		return nil
	}
	usual := median(speeds)
	for i, x := range busy {
		if d.tells(x.name(), matters && at[i][1] < slow*usual, !matters || at[i][0] > 2*slow*usual) {
			changes = append(changes, Change{Rank: -1, Host: x.From, To: x.To, Over: !d.told[x.name()], Cause: Carrying, Speed: speeds[i], UsualSpeed: usual})
		}
	}
	return changes
}

func (r Rank) name() string { return "rank " + strconv.Itoa(r.Number) }

func (l Link) name() string { return l.From + " " + l.To }

func micros(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }

// beyond returns how far numbers are beyond their median.
func beyond(all []float64) []float64 {
	usual, out := median(all), slices.Clone(all)
	for i := range out {
		out[i] -= usual
	}
	return out
}

// median returns the lower median: of two ranks, the faster one is usual.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}
