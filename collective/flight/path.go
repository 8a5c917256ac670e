package flight

// Samples is how many samples a Path keeps. Its owner takes one a second: of the last half minute.
const Samples = 30

// sample is what a link to another host did between two looks at it.
type sample struct {
	acked uint64 // bytes that the peer has acknowledged
	again uint32 // packets that the kernel has sent again
	time  uint32 // in milliseconds
}

// bad reports whether the path lost more than one packet of two hundred. A packet carries 1400 bytes, or more. Where none arrived
// at all, the other host does not answer, or packets are too large for the path.
func (s *sample) bad() bool { return s.again > 1 && s.acked > 0 && uint64(s.again)*1400*200 > s.acked }

// Path keeps what a link to another host did in the last half minute, to distinguish a path that loses packets all the time,
// as a bad cable does, from one that lost some when more came than fits. The zero value is ready to use.
type Path struct {
	at           int64 // when the counters were seen last, in milliseconds
	acked, again uint64
	looked       bool
	kept         [Samples]sample
	added        int
}

// Look takes the counters of the link at a time, in milliseconds. A counter begins anew when a connection is replaced.
func (p *Path) Look(at int64, acked, again uint64) {
	if p.looked {
		p.kept[p.added%Samples] = sample{acked - min(acked, p.acked), uint32(again - min(again, p.again)), uint32(at - p.at)}
		p.added++
	}
	p.at, p.acked, p.again, p.looked = at, acked, again, true
}

// Loss is what a path lost since the first of the samples in which it lost much.
type Loss struct {
	Packets uint64 // that were sent again
	Bytes   uint64 // that arrived
	Time    int64  // in milliseconds
	Bad, Of int    // it lost much in so many samples, of those in which anything was sent
}

// Lasting reports whether it is not one burst: the path lost packets in three samples or more, and in most of them.
func (l Loss) Lasting() bool { return l.Bad >= 3 && 2*l.Bad > l.Of }

// Loss returns what the path lost.
func (p *Path) Loss() (l Loss) {
	for i := max(p.added-Samples, 0); i < p.added; i++ {
		s := &p.kept[i%Samples]
		if l.Bad == 0 && !s.bad() {
			continue
		}
		l.Packets, l.Bytes, l.Time = l.Packets+uint64(s.again), l.Bytes+s.acked, l.Time+int64(s.time)
		if s.acked > 0 || s.again > 0 {
			l.Of++
		}
		if s.bad() {
			l.Bad++
		}
	}
	return l
}
