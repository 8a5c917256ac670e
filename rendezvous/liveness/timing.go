package liveness

import "time"

// Timing holds every duration that decides whether a host is there. Default holds the ones that users know from the README.
type Timing struct {
	// How often the two sides speak and look.
	HostInterval     time.Duration // between a daemon's signs of life to the launcher, and between its looks at its peers
	LauncherInterval time.Duration // between the launcher's signs of life to a daemon
	LookInterval     time.Duration // between the launcher's looks at its hosts

	// How long a host may be silent.
	Lease     time.Duration // a host, unless the user says
	MoveLease time.Duration // a host that announced a move, or one with virtual GPUs, unless the user says
	MoveLimit time.Duration // how long an announced move is believed in if no end of it is reported
	LinkLease time.Duration // the least for a peer to answer over its link, or to be reached by a new one

	// How soon users and the other hosts learn of a silence.
	NoticeAfter     time.Duration // a silence is worth a line
	FormNoticeAfter time.Duration // a world that waits for a host is worth a line
	PreWarning      time.Duration // before the end of a peer's lease the launcher learns of it
	MinSilence      time.Duration // a pre-warning is never about a shorter silence

	// What the launcher does about it.
	UnheardAfter   time.Duration // the launcher believes other hosts about a host that is silent for so long
	StragglerAfter time.Duration // a host that is waited for counts as silent
	EvidenceGrace  time.Duration // hosts have to say what they hear, from the first pre-warning, before one of them is evicted
	ReunionGrace   time.Duration // a host that was paused has to be heard by its peers again
	RejoinGrace    time.Duration // hosts have to find each other in a start after one of them was silent
	HangUpGrace    time.Duration // a host that ended its own connections has to answer
	LoginGrace     time.Duration // the same, where only a finished login shows that the host answers

	// How long hosts do without their launcher.
	MinLauncherLease time.Duration // the least, whatever their own lease
	LauncherExtra    time.Duration // beyond their own lease: a paused launcher must be heard again, too
	AbandonGrace     time.Duration // an isolated launcher ends the job so much later than its hosts do
	Aftermath        time.Duration // a launcher that was paused receives what its hosts did meanwhile
}

// Default returns the timing of a job.
func Default() Timing {
	const second = time.Second
	return Timing{
		HostInterval: second, LauncherInterval: 5 * second, LookInterval: 250 * time.Millisecond,
		Lease: 30 * second, MoveLease: 120 * second, MoveLimit: 30 * time.Minute, LinkLease: 6 * second,
		NoticeAfter: 5 * second, FormNoticeAfter: 4 * second, PreWarning: 5 * second, MinSilence: 2 * second,
		UnheardAfter: 3 * second, StragglerAfter: 2 * second, EvidenceGrace: 5 * second, ReunionGrace: 10 * second,
		RejoinGrace: 20 * second, HangUpGrace: 1500 * time.Millisecond, LoginGrace: 5 * second,
		MinLauncherLease: 30 * second, LauncherExtra: 5 * second, AbandonGrace: 5 * second, Aftermath: 30 * second,
	}
}

// Scaled returns t with every duration multiplied by factor: tests that wait for leases take a fifth of the time with 0.2.
// A factor of 0 leaves t as it is.
func (t Timing) Scaled(factor float64) Timing {
	if factor == 0 {
		return t
	}
	for _, d := range t.all() {
		*d = time.Duration(float64(*d) * factor)
	}
	return t
}

func (t *Timing) all() []*time.Duration {
	return []*time.Duration{&t.HostInterval, &t.LauncherInterval, &t.LookInterval, &t.Lease, &t.MoveLease, &t.MoveLimit, &t.LinkLease,
		&t.NoticeAfter, &t.FormNoticeAfter, &t.PreWarning, &t.MinSilence, &t.UnheardAfter, &t.StragglerAfter, &t.EvidenceGrace,
		&t.ReunionGrace, &t.RejoinGrace, &t.HangUpGrace, &t.LoginGrace, &t.MinLauncherLease, &t.LauncherExtra, &t.AbandonGrace, &t.Aftermath}
}

// OverLink returns the lease of a peer that has to answer over its link: it takes more than a word of gossip, as the peer may be busy
// with its start, or read nothing for a while.
func (t Timing) OverLink(lease time.Duration) time.Duration { return max(lease, t.LinkLease) }

// WarnAfter returns the silence over a link after which the launcher is pre-warned.
func (t Timing) WarnAfter(lease time.Duration) time.Duration {
	return max(t.OverLink(lease)-t.PreWarning, t.MinSilence)
}

// Launcher returns how long hosts with a lease do without their launcher: it may be paused for as long as any of them, and then has to
// be heard again.
func (t Timing) Launcher(lease time.Duration) time.Duration {
	return max(t.MinLauncherLease, lease+t.LauncherExtra)
}

// Abandon returns after what isolation the launcher ends the job: its hosts have ended it by then. Hosts ask each other whether one
// hears the launcher still, and all of them have last heard it at about the same time.
func (t Timing) Abandon(lease time.Duration) time.Duration { return t.Launcher(lease) + t.AbandonGrace }
