package worker

import (
	"context"
	"sync"
	"syscall"
	"time"

	"gorun/rendezvous/wire"
)

// Tie is which daemons of a job hear their launcher. One whose connection has ended cannot tell a launcher that died
// from a connection that broke. Its peers can: as long as one of them hears the launcher, that lives and will come back.
type Tie struct {
	changed chan struct{} // holds a token when here has changed

	mu    sync.Mutex
	here  bool
	still bool            // the launcher is stopped, and has said so
	over  bool            // the job ends here
	epoch uint32          // of the world that this host knows of
	left  uint32          // the last epoch that goes on without this host, as peers say
	lease time.Duration   // how long hosts may be silent
	peers map[int]hearing // of the world
	gone  map[int]bool    // peers that have ended their connections with this host
}

// hearing is the last word of a peer; none is good news.
type hearing struct {
	stamp uint64
	deaf  bool
}

// forever is a stamp after all that hosts give.
const forever = ^uint64(0)

// NewTie returns that of a daemon which hears its launcher.
func NewTie() *Tie { return &Tie{changed: make(chan struct{}, 1), here: true} }

// Hears notes whether this host hears the launcher.
func (t *Tie) Hears(here bool) {
	t.mu.Lock()
	changed := t.here != here
	t.here = here
	t.mu.Unlock()
	if changed {
		select {
		case t.changed <- struct{}{}:
		default:
		}
	}
}

// deaf reports whether this host does not hear the launcher.
func (t *Tie) deaf() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.here
}

// Patience is how long the launcher may say nothing although its connection stands, 0 for as long as it likes: if its user has stopped
// it by Ctrl-Z, that may be for hours.
func (t *Tie) Patience() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.still {
		return 0
	}
	return wire.LauncherLease(t.lease)
}

// signalled takes a signal that the launcher has had, which it forwards to its ranks.
func (t *Tie) signalled(number int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch syscall.Signal(number) {
	case syscall.SIGTSTP:
		t.still = true
	case syscall.SIGCONT:
		t.still = false
	}
}

// leastTie is how long a launcher that others hear is waited for at least: how long it takes on a busy machine to connect
// again nobody knows.
const leastTie = 30 * time.Second

// Elsewhere is true if another host hears the launcher, for all that is known, and it is worth to go on waiting for it.
func (t *Tie) Elsewhere(waited time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if waited >= max(leastTie, t.lease) || t.over || t.left > t.epoch {
		return false
	}
	for host, p := range t.peers {
		if !p.deaf && !t.gone[host] {
			return true
		}
	}
	return false
}

// among forgets all but the peers of a world, in which hosts may be silent for so long. Nil is nobody's.
func (t *Tie) among(epoch uint32, peers []int, lease time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch, t.lease = epoch, lease
	known := t.peers
	t.peers = map[int]hearing{}
	for _, p := range peers {
		t.peers[p] = known[p]
	}
}

// end says that this host stops: its peers do as well, and are not listened to any more.
func (t *Tie) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// without says that the world of an epoch does without this host, which each of its peers there knows for all: they may hear the
// launcher, but it will not come back. A word that is late, of a world before the one that this host is in, says nothing.
func (t *Tie) without(epoch uint32) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = max(t.left, epoch)
}

// peer takes the word of a peer, or what is known of it otherwise.
func (t *Tie) peer(host int, word hearing) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, member := t.peers[host]; member && word.stamp >= known.stamp {
		t.peers[host] = word
	}
}

// back says that a peer that was silent was heard again, and with it perhaps the launcher.
func (t *Tie) back(host int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.peers[host].stamp == forever {
		t.peers[host] = hearing{}
	}
}

// hungUp says which peers have ended their connections with this host: most likely their processes are gone, as they are when
// the job has ended while this host stood still. They hear no launcher.
func (t *Tie) hungUp(gone map[int]bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = gone
}

// watchTie tells the peers when this host loses its launcher, and when it hears it again.
func (d *daemon) watchTie(ctx context.Context) {
	t := d.cfg.Tie
	if t == nil {
		return
	}
	for stamp := uint64(1); ; stamp++ {
		select {
		case <-t.changed:
		case <-ctx.Done():
			return
		}
		t.mu.Lock()
		m := &wire.Hears{Host: d.job.HostID, Stamp: stamp, Launcher: t.here}
		t.mu.Unlock()
		d.post(ctx, func() {
			d.hears = m
			for _, p := range d.others() {
				d.send(p.ID, m)
			}
			if !m.Launcher {
				d.askOthers(ctx)
			}
		})
	}
}

// askOthers has this host meet the others that do not form their world yet: only so does it hear whether the launcher lives.
// That forms it as soon as it notices the same.
func (d *daemon) askOthers(ctx context.Context) {
	if d.roster != nil && d.roster.Later && !d.meshed && len(d.others()) > 0 {
		d.form(ctx, nil)
	}
}

// tellDeaf tells a peer that this host met after it lost its launcher.
func (d *daemon) tellDeaf(peer int) {
	if d.hears != nil && !d.hears.Launcher {
		d.send(peer, d.hears)
	}
}

// releaseOthers tells hosts that the next world has no place for: the launcher will not come back to them.
func (d *daemon) releaseOthers(former, next *wire.Roster) {
	if d.cfg.Tie == nil || former == nil {
		return
	}
	for _, p := range former.Peers {
		if _, member := peerOf(next, p.ID); !member && p.ID != d.job.HostID {
			d.send(p.ID, &wire.Without{Epoch: next.Epoch})
		}
	}
}
