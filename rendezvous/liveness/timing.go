package liveness

import "time"

// Timing holds every duration that decides whether a host is there. docs/guides/vsphere.md and docs/guides/elastic.md
// give users the values of Default.
type Timing struct {
	// How often the launcher and its hosts send signs of life, and check for them.
	HostInterval     time.Duration // between a daemon's signs of life to the launcher, and between its looks at its peers
	LauncherInterval time.Duration // between the launcher's signs of life to a daemon
	LookInterval     time.Duration // between the launcher's looks at its hosts, and a daemon's at its launcher
	PauseAfter       time.Duration // a daemon whose look at its peers is later than this was paused; not scaled

	// How long a host may be silent.
	Lease     time.Duration // of a host, unless the user sets --lease
	MoveLease time.Duration // of a host that announced a move, or has virtual GPUs, unless the user sets --lease
	MoveLimit time.Duration // how long an announced move counts if its end is not reported
	LinkLease time.Duration // the shortest lease of a peer over a link, or while a link is being made

	// When a host that does not answer is tried again.
	ReconnectAfter time.Duration // a connection that delivers nothing for this long gets a second one beside it
	AnswerTimeout  time.Duration // between the logins to a host that does not answer
	LinkTimeout    time.Duration // hosts report that they do not reach each other after trying for this long

	// How soon users and the other hosts learn of a silence.
	NoticeAfter      time.Duration // users read of a silence
	FormNoticeAfter  time.Duration // users read of a host that a world waits for
	StartNoticeAfter time.Duration // users read which hosts a start waits for
	EndNoticeAfter   time.Duration // users read which hosts the end waits for
	PreWarning       time.Duration // a host warns the launcher this long before a peer's lease ends
	MinSilence       time.Duration // the shortest silence that a pre-warning is about

	// What the launcher does about it.
	UnheardAfter   time.Duration // the launcher believes one peer about a host it has not heard for this long either
	StragglerAfter time.Duration // a host that a start or an end waits for counts as silent
	EvidenceGrace  time.Duration // between the first report or pre-warning and an eviction without a majority
	ReunionGrace   time.Duration // peers get this long to hear a host that was paused
	RejoinGrace    time.Duration // hosts get this long to find each other in a start after one was silent
	HangUpGrace    time.Duration // a host that ended its own connections gets this long to answer
	LoginGrace     time.Duration // the same, beyond the time of its last login, where only a finished login shows that the host answers

	// How long hosts do without their launcher.
	MinLauncherLease time.Duration // the shortest, whatever their own lease
	LauncherExtra    time.Duration // beyond their own lease, to hear a paused launcher again
	AbandonGrace     time.Duration // an isolated launcher ends the job this long after the limit of its hosts
	Aftermath        time.Duration // a launcher that was paused receives for this long what its hosts did meanwhile

	// How long both ends look for a connection. A daemon does so before it knows the scale of its job: not scaled.
	FirstConnection time.Duration // a daemon waits this long for its launcher after it was started
	BrokenGrace     time.Duration // and this long after a connection that ended or fell silent; then it asks its peers
	ResidentGrace   time.Duration // the same in a cluster, if it ended: the resident daemon may be being replaced
	AdoptGrace      time.Duration // a host that another launcher takes over may lack a resident daemon for this long
	ConnectTimeout  time.Duration // a resident daemon that was reached before has to answer within this time
	LoginTimeout    time.Duration // a login may take this long, if its host answers within AnswerTimeout
	RetryMin        time.Duration // the first pause between two logins; a host that refuses may do so for long
	RetryMax        time.Duration // the longest
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

		FirstConnection: 20 * time.Second,
		BrokenGrace:     2 * time.Second,
		ResidentGrace:   time.Minute,
		AdoptGrace:      45 * time.Second,
		ConnectTimeout:  2 * time.Second,
		LoginTimeout:    20 * time.Second,
		RetryMin:        100 * time.Millisecond,
		RetryMax:        500 * time.Millisecond,
	}
}

// Scaled returns t with its durations multiplied by factor: tests that wait for leases take a fifth of the time with
// 0.2. PauseAfter stays, because a busy machine is as late as before, and so does how long both ends look for a
// connection. A factor of 0 leaves t as it is.
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

// Late returns the delay of a look, due every LookInterval, beyond which the process must have been paused. It could
// hear no one meanwhile.
func (t Timing) Late() time.Duration { return 4 * t.LookInterval }

// OverLink returns the lease of a peer that has to answer over its link. That may take longer than an answer to gossip:
// the peer may be busy with its start, or read nothing for a while.
func (t Timing) OverLink(lease time.Duration) time.Duration { return max(lease, t.LinkLease) }

// WarnAfter returns the silence over a link after which the launcher is pre-warned.
func (t Timing) WarnAfter(lease time.Duration) time.Duration {
	return max(t.OverLink(lease)-t.PreWarning, t.MinSilence)
}

// Launcher returns how long hosts with a lease wait for a silent launcher. It may be paused for as long as any of them,
// and they need a moment to hear it again.
func (t Timing) Launcher(lease time.Duration) time.Duration {
	return max(t.MinLauncherLease, lease+t.LauncherExtra)
}

// Abandon returns how long an isolated launcher waits before it ends the job. Its hosts have ended it by then: they
// last heard the launcher at about the same time, so none of them extends the others' wait.
func (t Timing) Abandon(lease time.Duration) time.Duration { return t.Launcher(lease) + t.AbandonGrace }
