package liveness

import "time"

// Timing holds every duration that decides whether a host is there. Default holds the ones that users know from the README.
type Timing struct {
	// How often the two sides speak and look.
	HostInterval     time.Duration // between a daemon's signs of life to the launcher, and between its looks at its peers
	LauncherInterval time.Duration // between the launcher's signs of life to a daemon
	LookInterval     time.Duration // between the launcher's looks at its hosts, and a daemon's at its launcher
	PauseAfter       time.Duration // a daemon's look at its peers comes so late only if the daemon was paused, at any scale

	// How long a host may be silent.
	Lease     time.Duration // a host, unless the user says
	MoveLease time.Duration // a host that announced a move, or one with virtual GPUs, unless the user says
	MoveLimit time.Duration // how long an announced move is believed in if no end of it is reported
	LinkLease time.Duration // the least for a peer to answer over its link, or to be reached by a new one

	// When a host that does not answer is tried again.
	ReconnectAfter time.Duration // a connection that delivers nothing is kept, and another one is tried beside it
	AnswerTimeout  time.Duration // a host that is looked for has to answer a login, until the next one begins
	LinkTimeout    time.Duration // hosts try to reach each other for so long until they report that they do not

	// How soon users and the other hosts learn of a silence.
	NoticeAfter      time.Duration // a silence is worth a line
	FormNoticeAfter  time.Duration // a world that waits for a host is worth a line
	StartNoticeAfter time.Duration // a start that waits for hosts names them
	EndNoticeAfter   time.Duration // an end that waits for hosts names them
	PreWarning       time.Duration // before the end of a peer's lease the launcher learns of it
	MinSilence       time.Duration // a pre-warning is never about a shorter silence

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
	return Timing{
		HostInterval:     time.Second,
		LauncherInterval: 5 * time.Second,
		LookInterval:     250 * time.Millisecond,
		PauseAfter:       2 * time.Second,

		Lease:     30 * time.Second,
		MoveLease: 120 * time.Second,
		MoveLimit: 30 * time.Minute,
		LinkLease: 6 * time.Second,

		ReconnectAfter: 4 * time.Second,
		AnswerTimeout:  time.Second,
		LinkTimeout:    15 * time.Second,

		NoticeAfter:      5 * time.Second,
		FormNoticeAfter:  4 * time.Second,
		StartNoticeAfter: 2 * time.Second,
		EndNoticeAfter:   2 * time.Second,
		PreWarning:       5 * time.Second,
		MinSilence:       2 * time.Second,

		UnheardAfter:   3 * time.Second,
		StragglerAfter: 2 * time.Second,
		EvidenceGrace:  5 * time.Second,
		ReunionGrace:   10 * time.Second,
		RejoinGrace:    20 * time.Second,
		HangUpGrace:    1500 * time.Millisecond,
		LoginGrace:     5 * time.Second,

		MinLauncherLease: 30 * time.Second,
		LauncherExtra:    5 * time.Second,
		AbandonGrace:     5 * time.Second,
		Aftermath:        30 * time.Second,
	}
}

// Scaled returns t with its durations multiplied by factor: tests that wait for leases take a fifth of the time with 0.2.
// PauseAfter stays, because a busy machine is as late as before. A factor of 0 leaves t as it is.
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
	return []*time.Duration{
		&t.HostInterval, &t.LauncherInterval, &t.LookInterval,
		&t.Lease, &t.MoveLease, &t.MoveLimit, &t.LinkLease,
		&t.ReconnectAfter, &t.AnswerTimeout, &t.LinkTimeout,
		&t.NoticeAfter, &t.FormNoticeAfter, &t.StartNoticeAfter, &t.EndNoticeAfter, &t.PreWarning, &t.MinSilence,
		&t.UnheardAfter, &t.StragglerAfter, &t.EvidenceGrace, &t.ReunionGrace, &t.RejoinGrace, &t.HangUpGrace, &t.LoginGrace,
		&t.MinLauncherLease, &t.LauncherExtra, &t.AbandonGrace, &t.Aftermath,
	}
}

// Late returns after how long a look every LookInterval comes so late that its process was paused: until then it could
// hear no one.
func (t Timing) Late() time.Duration { return 4 * t.LookInterval }

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
