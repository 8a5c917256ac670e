package link

import "time"

// Totals are what one link has done, or all that a mesh has had.
type Totals struct {
	SentBytes                   uint64 // without repetitions
	UpgradedBytes               uint64 // of SentBytes: not over TCP, see Config.Upgrade
	ResentSegments, ResentBytes uint64
	Attached                    uint64 // streams that were opened
	Renewed                     uint64 // of Attached: those that replaced others
	Damaged                     uint64 // streams that were replaced because of damaged data
	// BusyBytes is what the peer acknowledged in BusyTime, while there was more to send than the streams took: together
	// they are the bandwidth of the path to the peer.
	BusyBytes uint64
	BusyTime  time.Duration
}

func (t *Totals) add(o Totals) {
	t.SentBytes += o.SentBytes
	t.UpgradedBytes += o.UpgradedBytes
	t.ResentSegments += o.ResentSegments
	t.ResentBytes += o.ResentBytes
	t.Attached += o.Attached
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
		l.mu.Lock()
		all = append(all, LinkTotals{Totals: l.totals(), Peer: peer, Queued: l.out.win.held + l.out.queued()})
		l.mu.Unlock()
	}
	return all
}

// Totals returns the sums so far.
func (m *Mesh) Totals() Totals {
	m.mu.Lock()
	sum := m.past
	m.mu.Unlock()
	for _, l := range m.Links() {
		sum.add(l.Totals)
	}
	return sum
}

// totals is called with the lock held.
func (l *link) totals() Totals {
	t := l.stats
	t.Renewed = t.Attached - min(t.Attached, uint64(l.opened))
	return t
}
