package liveness

import "time"

// LauncherLease decides how long a host waits for its launcher. To a host whose connection has ended, a launcher that
// died looks like a connection that broke. Its peers know more: while one of them hears the launcher, the launcher
// lives and will connect again. A peer that this host has never heard proves nothing: while a world is yet to be
// formed, the peer's daemon may have ended with the launcher.
//
// The zero value is ready for use with the Default timing. Only Configure and World change how long the lease is.
type LauncherLease struct {
	timing  Timing
	lease   time.Duration // of hosts
	stopped bool          // the launcher has reported that its user stopped it
	ending  bool          // the job ends on this host
	over    bool          // its ranks here have ended
	epoch   uint32        // of the world of this host
	left    uint32        // the last epoch that goes on without this host, as peers report
	peers   map[int]hearing
	met     map[int]bool // hosts that gossip has heard
	hungUp  map[int]bool // peers that have ended their connections with this host
}

// hearing is the last report of a peer on whether it hears the launcher. Without a report, a peer that was met does.
type hearing struct {
	stamp uint64
	deaf  bool
}

// silent is a stamp later than any that hosts give.
const silent = ^uint64(0)

// Configure sets the timing.
func (l *LauncherLease) Configure(t Timing) { l.timing = t }

func (l *LauncherLease) limits() Timing {
	if l.timing == (Timing{}) {
		return Default()
	}
	return l.timing
}

// Limit returns how long the launcher may be silent while its connection stands, 0 for no limit: a user may stop it by
// Ctrl-Z for hours.
func (l *LauncherLease) Limit() time.Duration {
	if l.stopped {
		return 0
	}
	return l.limits().Launcher(l.lease)
}

// Extend reports whether a host that has waited this long for its launcher should wait longer. It should while a peer
// may hear the launcher, which takes an unknown time to connect again on a busy machine. A host without ranks has
// nothing to lose, and waits as it does for the first connection.
func (l *LauncherLease) Extend(waited time.Duration) bool {
	if l.epoch == 0 || l.over {
		return waited < l.limits().FirstConnection
	}
	if waited >= max(l.limits().MinLauncherLease, l.lease) || l.ending || l.left > l.epoch {
		return false
	}
	for host, p := range l.peers {
		if met := l.met[host] || p.stamp > 0; met && !p.deaf && !l.hungUp[host] {
			return true
		}
	}
	return false
}

// Stopped notes that the user has stopped the launcher, or that it runs again.
func (l *LauncherLease) Stopped(stopped bool) { l.stopped = stopped }

// World sets the peers of the world of an epoch, in which hosts may be silent for lease.
func (l *LauncherLease) World(epoch uint32, peers []int, lease time.Duration) {
	l.epoch, l.lease = epoch, lease
	known := l.peers
	l.peers = map[int]hearing{}
	for _, p := range peers {
		l.peers[p] = known[p]
	}
}

// End notes that the job ends on this host. It ends on the peers too, so what they hear no longer counts.
func (l *LauncherLease) End() { l.ending = true }

// Over notes that the ranks of this host have ended. The launcher has yet to learn how.
func (l *LauncherLease) Over() { l.over = true }

// Left notes that the world of an epoch goes on without this host. Its former peers may hear the launcher, but the
// launcher will not come back to this host. A late report, about a world before this host's own, changes nothing.
func (l *LauncherLease) Left(epoch uint32) { l.left = max(l.left, epoch) }

// Peer takes the report of a peer on whether it hears the launcher. The stamps of a peer's reports ascend.
func (l *LauncherLease) Peer(host int, stamp uint64, hears bool) {
	if known, member := l.peers[host]; member && stamp >= known.stamp {
		l.peers[host] = hearing{stamp: stamp, deaf: !hears}
	}
}

// Silent notes that a peer is silent, so that it proves nothing about the launcher.
func (l *LauncherLease) Silent(host int) { l.Peer(host, silent, false) }

// Heard notes that gossip hears a host, perhaps again. It may hear the launcher.
func (l *LauncherLease) Heard(host int) {
	if l.met == nil {
		l.met = map[int]bool{}
	}
	l.met[host] = true
	if l.peers[host].stamp == silent {
		l.peers[host] = hearing{}
	}
}

// HungUp sets which peers have ended their connections with this host. Most likely their daemons have ended, for
// example because the job ended while this host was paused, and hear no launcher.
func (l *LauncherLease) HungUp(peers map[int]bool) { l.hungUp = peers }
