package liveness

import "time"

// LauncherLease decides whether a host waits for its launcher. A host whose connection has ended cannot tell a launcher that died from a
// connection that broke. Its peers can: as long as one of them hears the launcher, that lives and will come back.
//
// The zero value is ready for use with the Default timing; a method other than Configure never changes how long the lease is but by World.
type LauncherLease struct {
	timing  Timing
	lease   time.Duration // of hosts
	stopped bool          // the launcher has reported that its user stopped it
	ending  bool          // the job ends on this host
	epoch   uint32        // of the world of this host
	left    uint32        // the last epoch that goes on without this host, as peers report
	peers   map[int]hearing
	hungUp  map[int]bool // peers that have ended their connections with this host
}

// hearing is the last report of a peer; no report is good news.
type hearing struct {
	stamp uint64
	deaf  bool
}

// silent is a stamp after all that hosts give.
const silent = ^uint64(0)

// Configure sets the timing.
func (l *LauncherLease) Configure(t Timing) { l.timing = t }

func (l *LauncherLease) limits() Timing {
	if l.timing == (Timing{}) {
		return Default()
	}
	return l.timing
}

// Limit returns how long the launcher may be silent although its connection stands, 0 for as long as it likes: one that its user has
// stopped by Ctrl-Z may be so for hours.
func (l *LauncherLease) Limit() time.Duration {
	if l.stopped {
		return 0
	}
	return l.limits().Launcher(l.lease)
}

// Extend reports whether a host that has waited for so long for its launcher should go on to wait: another host hears it, for all that is
// known, and how long it takes to connect again on a busy machine is unknown.
func (l *LauncherLease) Extend(waited time.Duration) bool {
	if waited >= max(l.limits().MinLauncherLease, l.lease) || l.ending || l.left > l.epoch {
		return false
	}
	for host, p := range l.peers {
		if !p.deaf && !l.hungUp[host] {
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

// End notes that the job ends on this host. It does on its peers, too, which count no more.
func (l *LauncherLease) End() { l.ending = true }

// Left notes that the world of an epoch goes on without this host: its peers there may hear the launcher, but it will not come back. A
// late report, about a world before the one that this host is in, changes nothing.
func (l *LauncherLease) Left(epoch uint32) { l.left = max(l.left, epoch) }

// Peer takes the report of a peer on whether it hears the launcher. The stamps of a peer's reports ascend.
func (l *LauncherLease) Peer(host int, stamp uint64, hears bool) {
	if known, member := l.peers[host]; member && stamp >= known.stamp {
		l.peers[host] = hearing{stamp: stamp, deaf: !hears}
	}
}

// Silent notes that a peer is silent, so that it cannot vouch for the launcher.
func (l *LauncherLease) Silent(host int) { l.Peer(host, silent, false) }

// Heard notes that a peer which was silent is heard again, and with it perhaps the launcher.
func (l *LauncherLease) Heard(host int) {
	if l.peers[host].stamp == silent {
		l.peers[host] = hearing{}
	}
}

// HungUp sets which peers have ended their connections with this host. Most likely their processes are gone, as they are when the job
// ended while this host was paused, and hear no launcher.
func (l *LauncherLease) HungUp(peers map[int]bool) { l.hungUp = peers }
