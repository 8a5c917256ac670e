package link

import "time"

// Totals are sums over all links that a mesh has had.
type Totals struct {
	SentBytes      uint64 // without repetitions
	UpgradedBytes  uint64 // of SentBytes: not over TCP, see Config.Upgrade
	ResentSegments uint64
	ResentBytes    uint64
	Renewed        uint64 // streams that replaced others
	Damaged        uint64 // streams that delivered damaged data
	BusyBytes      uint64 // see Status.BusyBytes
	BusyTime       time.Duration
}

func (t *Totals) add(o Totals) {
	t.SentBytes += o.SentBytes
	t.UpgradedBytes += o.UpgradedBytes
	t.ResentSegments += o.ResentSegments
	t.ResentBytes += o.ResentBytes
	t.Renewed += o.Renewed
	t.Damaged += o.Damaged
	t.BusyBytes += o.BusyBytes
	t.BusyTime += o.BusyTime
}

// LinkTotals is what one link has done, and what it has to do.
type LinkTotals struct {
	Totals
	Peer   int
	Queued int // segments that wait for a stream, or for the peer's acknowledgement
}

// Links returns what each link that there is has done so far.
func (m *Mesh) Links() (all []LinkTotals) {
	for peer, l := range *m.links.Load() {
		one := LinkTotals{Totals: l.totals(), Peer: peer}
		l.mu.Lock()
		one.Queued = l.out.win.held + l.out.queued()
		l.mu.Unlock()
		all = append(all, one)
	}
	return all
}

// Totals returns the sums so far.
func (m *Mesh) Totals() Totals {
	m.mu.Lock()
	sum := m.past
	m.mu.Unlock()
	for _, l := range *m.links.Load() {
		sum.add(l.totals())
	}
	return sum
}

func (l *link) totals() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.stats
	t := Totals{SentBytes: c.sentBytes, UpgradedBytes: c.upgradedBytes, ResentSegments: c.resentSegments,
		ResentBytes: c.resentBytes, Damaged: c.damaged, BusyBytes: c.busyBytes, BusyTime: c.busyTime}
	if first := uint64(l.opened); c.attached > first {
		t.Renewed = c.attached - first
	}
	return t
}
