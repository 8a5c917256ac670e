package standing

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorun/rendezvous/gossip"
	"gorun/rendezvous/resume"
	"gorun/rendezvous/wire"
)

// The daemons of a cluster find each other by gossip, and announce in it what each has to offer. A host counts once it has
// answered a request of this daemon: what was gossiped about a host can be sent again when the host is gone.

const (
	// discoveryGrace is how long a new daemon may not know all the others.
	discoveryGrace = 30 * time.Second
	// rejoinInterval is the interval between attempts to find lost members.
	rejoinInterval = 5 * time.Second
	// lookInterval is the same for a host that is alone and looks for others by name.
	lookInterval = 500 * time.Millisecond
	// warnAfter is how long a daemon looks for any other before it warns.
	warnAfter = 3 * time.Second
	// announceDelay delays the news that more slots are in use. The queue holder knows, since it granted them, and so a
	// short job does not cause messages from every host to every other.
	announceDelay = 5 * time.Second
)

// about returns what this daemon announces.
func (s *server) about() (wire.ClusterMember, error) {
	_, port, err := net.SplitHostPort(s.cfg.Listener.Addr().String())
	if err != nil {
		return wire.ClusterMember{}, fmt.Errorf("read listener address: %w", err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return wire.ClusterMember{}, fmt.Errorf("read listener address: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return wire.ClusterMember{Port: n, Version: s.cfg.Version, Slots: s.cfg.Slots, Used: s.used, Draining: s.draining, Born: s.born.UnixNano()}, nil
}

// change applies f to the state and wakes all waiters.
func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.announce()
}

// announce is called with mu held.
func (s *server) announce() {
	s.queue.follow()
	s.queue.grant()
	close(s.news)
	s.news = make(chan struct{})
}

// seek joins the other daemons, and keeps looking for members that have disappeared: they may return, or a partition
// may heal.
func (s *server) seek(ctx context.Context) {
	if len(s.cfg.Join) > 0 {
		if !s.join(ctx) {
			return
		}
		s.cfg.Log.Info("joined", "hosts", strings.Join(s.cfg.Join, ","))
	}
	once, end := context.WithCancel(ctx)
	end()
	seen := map[string]string{} // gossip addresses by name
	for {
		missing, members := maps.Clone(seen), s.gossip.Members()
		if s.cfg.Look != nil {
			for _, addr := range s.cfg.Look(ctx) {
				missing[addr] = addr
			}
		}
		for _, m := range members {
			seen[m.Name] = m.Gossip
			delete(missing, m.Name)
			delete(missing, m.Gossip)
		}
		for _, addr := range missing { // one at a time, as an attempt may take seconds
			s.gossip.Join(once, []string{addr})
			break
		}
		wait := rejoinInterval
		if s.cfg.Look != nil && len(members) < 2 {
			wait = lookInterval
		}
		if !resume.Pause(ctx, wait) {
			return
		}
	}
}

// join finds one of the configured daemons. The hosts of a cluster may start in any order, so it never gives up; it
// warns once about those it cannot find.
func (s *server) join(ctx context.Context) bool {
	early, stop := context.WithTimeout(ctx, warnAfter)
	err := s.gossip.Join(early, s.cfg.Join)
	stop()
	if err == nil || ctx.Err() != nil {
		return err == nil
	}
	s.cfg.Log.Warn("finds none of the hosts to join: are their names, ports and the key right? Goes on trying, as a cluster of its own", "err", err)
	return s.gossip.Join(ctx, s.cfg.Join) == nil
}

// watch exchanges announcements with the other daemons.
func (s *server) watch(ctx context.Context) {
	var said wire.ClusterMember
	var fuller time.Time // since when more slots are in use than announced, and nothing else changed
	grown := time.NewTimer(discoveryGrace)
	defer grown.Stop()
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		wait := time.Second
		switch about, err := s.about(); {
		case err != nil || about == said:
			fuller = time.Time{}
		case onlyFuller(said, about) && fuller.IsZero():
			fuller, wait = time.Now(), announceDelay
		case onlyFuller(said, about) && time.Since(fuller) < announceDelay:
			wait = announceDelay - time.Since(fuller)
		default:
			s.tell(&said, about)
			fuller = time.Time{}
			s.refresh(ctx)
		}
		retry := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			retry.Stop()
			return
		case <-s.gossip.Changes():
			s.refresh(ctx)
		case <-s.answered:
			s.refresh(ctx)
		case <-s.gossip.Events(): // membership with host ids, which clusters do not use
		case <-news:
		case <-grown.C:
			s.change(func() { s.queue.discovering = false })
		case <-retry.C:
		}
		retry.Stop()
	}
}

// onlyFuller reports whether the only change is that more slots are in use.
func onlyFuller(before, now wire.ClusterMember) bool {
	more := now.Used > before.Used
	now.Used = before.Used
	return more && now == before
}

// tell announces what changed about this daemon. It retries soon after a failure.
func (s *server) tell(said *wire.ClusterMember, about wire.ClusterMember) {
	meta, err := wire.Marshal(&about)
	if err == nil {
		err = s.gossip.SetMeta(meta)
	}
	*said = about
	if err != nil {
		s.cfg.Log.Debug("gossip", "err", err)
		*said = wire.ClusterMember{}
	}
}

// introduction is what a member announces, encoded and decoded.
type introduction struct {
	meta  []byte
	about *wire.ClusterMember // nil if this version cannot decode it
}

// introduce decodes what a member announces, once: every announcement makes refresh look at all members.
func (s *server) introduce(m gossip.Member) *wire.ClusterMember {
	if known, ok := s.read[m.Gossip]; ok && bytes.Equal(known.meta, m.Meta) {
		return known.about
	}
	msg, err := wire.Unmarshal(m.Meta)
	about, ok := msg.(*wire.ClusterMember)
	if err != nil || !ok || about.Slots < 0 || about.Used < 0 {
		about = nil // of another version of gorun
	}
	s.read[m.Gossip] = introduction{m.Meta, about}
	return about
}

// refresh adopts the members that gossip knows and that have answered, if they have changed. Of several with one name the
// latest counts: gossip waits for a lost one as long as for one that is silent.
func (s *server) refresh(ctx context.Context) {
	var hosts []wire.MemberState
	members := s.gossip.Members()
	if len(s.read) > len(members) { // some are gone
		clear(s.read)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known
	s.known = map[place]bool{}
	for _, m := range members {
		about := s.introduce(m)
		if about == nil {
			continue
		}
		hosts = append(hosts, wire.MemberState{Host: m.Name, Addr: net.JoinHostPort(m.Addr, strconv.Itoa(about.Port)),
			Slots: about.Slots, Used: about.Used, Draining: about.Draining, Version: about.Version, Born: about.Born})
		h := hosts[len(hosts)-1]
		at := place{h.Host, h.Addr}
		asked := false
		if s.known[at], asked = known[at]; !asked && h.Born == s.born.UnixNano() && h.Host == s.cfg.Name {
			s.known[at] = true // itself
		} else if !asked {
			s.wg.Go(func() { s.ask(ctx, at) })
		}
		if !s.known[at] {
			hosts = hosts[:len(hosts)-1]
		}
	}
	slices.SortFunc(hosts, func(a, b wire.MemberState) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), cmp.Compare(b.Born, a.Born))
	})
	hosts = slices.CompactFunc(hosts, func(a, b wire.MemberState) bool { return a.Host == b.Host })
	if slices.Equal(hosts, s.queue.hosts) {
		return
	}
	s.journal.noteMembers(s.cfg.Name, s.queue.hosts, hosts)
	s.queue.hosts, s.queueAddr = hosts, ""
	for _, h := range hosts {
		s.queue.seen[h.Host] = true
	}
	if i := slices.IndexFunc(hosts, func(h wire.MemberState) bool { return !h.Draining }); i >= 0 && (hosts[i].Host != s.cfg.Name || hosts[i].Born != s.born.UnixNano()) {
		s.queueAddr = hosts[i].Addr
	}
	s.announce()
}

// place is the name of a host, and where it accepts jobs.
type place struct{ host, addr string }

// ask asks a host that gossip names, until it answers or gossip names it no more. Its daemon proves the key, and knows
// itself by that name and address: it is not another one that has the address now.
func (s *server) ask(ctx context.Context, at place) {
	c := Client{Key: s.cfg.Key, Version: s.cfg.Version, knownHostTimeout: timing.ConnectTimeout}
	for pause := retry; ; pause = min(2*pause, rejoinInterval) {
		there, err := c.Members(ctx, at.addr)
		here := err == nil && slices.ContainsFunc(there.Members, func(m wire.MemberState) bool { return place{m.Host, m.Addr} == at })
		s.mu.Lock()
		_, named := s.known[at]
		if named && here {
			s.known[at] = true
		}
		s.mu.Unlock()
		if here || !named {
			break
		}
		if pause == retry && ctx.Err() == nil {
			s.cfg.Log.Warn("a host does not count, because it does not answer at its address", "host", at.host, "at", at.addr, "err", err)
		}
		if !resume.Pause(ctx, pause) {
			return
		}
	}
	select {
	case s.answered <- struct{}{}:
	default:
	}
}
