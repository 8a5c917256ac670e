package member

import (
	"cmp"
	"context"
	"crypto/fips140"
	"fmt"
	"slices"
	"strings"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/wire"
)

// How a roster of the launcher becomes the one that this host forms a world of.

const fipsHint = "set GODEBUG=fips140=on instead, which uses only approved algorithms too; a job on one host needs no gossip"

// reachHint says what to look at when other hosts are not reached over protocols.
func (m *Membership) reachHint(protocols string) string {
	nic := cmp.Or(m.cfg.Daemon.Host().Data, strings.Join(m.job.NICs, ","), "the NIC in use")
	return fmt.Sprintf("hosts must reach each other directly over %s: check that %s is the right NIC (--network-interfaces), "+
		"firewalls between them, and --ssh-config aliases that hide addresses", protocols, nic)
}

// Announce takes the hosts of the roster that comes next.
func (m *Membership) Announce(p *wire.Peers) { m.coming = p }

// Join ends the present world, if there is one, and begins to form the roster's.
func (m *Membership) Join(ctx context.Context, r *wire.Roster) {
	if r.Peers == nil && m.coming != nil && m.coming.Epoch == r.Epoch {
		r.Peers = m.coming.Peers
	}
	if m.ending || m.roster != nil && r.Epoch <= m.roster.Epoch {
		return // overtaken
	}
	err := Check(r, m.job.HostID, m.job.Name)
	if err == nil {
		err = m.cfg.Daemon.Admit(r)
	}
	if err != nil {
		m.cfg.Fail("join", err, "")
		return
	}
	former := m.roster
	if former != nil {
		m.life.stop()
		m.cfg.Daemon.EndWorld(ctx, former, r)
	}
	m.roster, m.unlinked = r, nil
	m.peers.Store(r)
	m.cfg.Daemon.RosterChanged(ctx, r)
	if len(r.Spares) > 0 { // some of which may not run yet: the launcher that listed them first was lost before it told this host
		if err := m.cfg.Daemon.SparesChanged(ctx, r); err != nil {
			m.cfg.Fail("join", err, "")
			return
		}
	}
	if _, ok := Peer(r, m.job.HostID); !ok { // nothing to do here until the next one
		m.cfg.Daemon.Expect(r.Epoch, nil)
		m.Step(ctx, epoch.Event{Roster: &epoch.Roster{Epoch: r.Epoch, Members: IDs(r)}})
		return
	}
	if r.Later {
		m.expect(r)
		m.cfg.Daemon.StartRanks(ctx)
		return
	}
	m.form(ctx, former)
}

// Spare takes the processes of this host that wait for their first world beside that of the roster. A later roster lists
// them again.
func (m *Membership) Spare(ctx context.Context, s *wire.Spares) {
	if m.ending || m.roster == nil || s.Epoch != m.roster.Epoch {
		return
	}
	r := *m.roster
	r.Spares = s.Ranks
	err := Check(&r, m.job.HostID, m.job.Name)
	if err == nil {
		m.roster = &r
		m.peers.Store(&r)
		err = m.cfg.Daemon.SparesChanged(ctx, &r)
	}
	if err != nil {
		m.cfg.Fail("join", err, "")
	}
}

// Want asks the launcher, once, to form the world now that was to be formed later: a rank waits for it.
func (m *Membership) Want() {
	if m.roster != nil && m.roster.Later && !m.connected && !m.requested {
		m.requested = true
		m.cfg.Out.Write(&wire.Wanted{})
	}
}

// Form begins to form the world of a roster that was to be formed later.
func (m *Membership) Form(ctx context.Context, number uint32) {
	if m.roster != nil && m.roster.Epoch == number && !m.connected {
		m.form(ctx, nil)
	}
}

// MeetOthers has this host meet the others although their world is to be formed later, which forms it as soon as all of
// them do.
func (m *Membership) MeetOthers(ctx context.Context) {
	if m.roster != nil && m.roster.Later && !m.connected && len(m.Others()) > 0 {
		m.form(ctx, nil)
	}
}

// form begins to form the world of the roster; former is the one before it, nil for none.
func (m *Membership) form(ctx context.Context, former *wire.Roster) {
	if m.ending {
		return
	}
	if !m.connected {
		if err := m.cfg.Gossip.Meet(ctx); err != nil {
			m.cfg.Fail("join", err, "")
			return
		}
		m.connected = true
	}
	r := m.roster
	var joiners []string
	for _, p := range r.Peers {
		if _, known := Peer(former, p.ID); !known && p.ID != m.job.HostID {
			joiners = append(joiners, p.Gossip)
		}
	}
	if len(joiners) > 0 {
		m.greet(ctx, r.Epoch, joiners[:min(len(joiners), MaxGreeted)])
	}
	m.expect(r)
	m.Step(ctx, epoch.Event{Roster: &epoch.Roster{Epoch: r.Epoch, Members: IDs(r)}})
	m.SelfChanged(ctx)
	m.tickEvery(tickPeriod)
}

// expect has the daemon take note of the other hosts of a roster, whose ranks start now or whose world is formed.
func (m *Membership) expect(r *wire.Roster) {
	m.cfg.Daemon.Expect(r.Epoch, slices.DeleteFunc(IDs(r), func(id int) bool { return id == m.job.HostID }))
}

// MaxGreeted is how many hosts are greeted, in case some do not answer.
const MaxGreeted = 3

// greet makes this host known to gossip: one host that answers is enough, because hosts make each other known. If it
// takes long, the launcher hears of it and decides, because the others may be paused.
func (m *Membership) greet(ctx context.Context, epoch uint32, addrs []string) {
	hint := m.reachHint("TCP and UDP")
	if fips140.Enforced() {
		hint = fipsHint
	}
	m.cfg.Loop.Go(func() {
		for {
			limit, cancel := context.WithTimeout(ctx, m.cfg.LinkTimeout)
			err := m.cfg.Gossip.Greet(limit, addrs)
			cancel()
			if err == nil || !m.goOn(ctx, epoch, err, wire.Failed{Step: "join", Hint: hint}) {
				return
			}
		}
	})
}

// goOn reports to the launcher of a static job that this host does not reach others, and returns whether to go on
// trying: the launcher decides which hosts are lost.
func (m *Membership) goOn(ctx context.Context, epoch uint32, err error, failed wire.Failed) bool {
	failed.Text, failed.Code, failed.Peer, failed.Again = err.Error(), 255, m.job.HostID, true
	answer := make(chan bool, 1)
	m.cfg.Loop.Post(ctx, func() {
		current := !m.ending && m.roster.Epoch == epoch
		if current && !m.job.Elastic { // see Missing
			m.cfg.Out.Write(&failed)
		}
		answer <- current
	})
	select {
	case current := <-answer:
		return current
	case <-ctx.Done():
		return false
	}
}

// fromHost marks why a host cannot enter a world with its name.
func (m *Membership) fromHost(err error) string { return fmt.Sprintf("%s: %v", m.job.Name, err) }
