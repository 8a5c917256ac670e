// Package liveness decides whether a host is there. It does no I/O and has no clock: events come in with the time,
// verdicts come out.
//
// Each host watches its peers (Peers) by gossip and by its links, and reports what it finds as wire.Evidence. The
// launcher hears every host by a sign of life each second, keeps one State for each (Hosts), and decides from that and
// from the evidence. A host without its launcher decides by LauncherLease how long to wait for it. All limits are fields
// of Timing, and its methods. What happens, and when (Default, lease 30 s; TestTimeline holds this page to it):
//
//   - A host's daemon ends or is killed: its kernel ends its connections. The launcher, or a peer, notices at once; a
//     host that cannot be reached for HangUpGrace, 1.5 s, is evicted (LoginGrace, 5 s, where only a finished login shows
//     that a host answers).
//   - A host dies without a word (power, kernel) or hangs: the connection to the launcher stands or breaks, and nothing
//     is heard. After NoticeAfter, 5 s, users read that the host is silent. After Lease, 30 s, its peers report it, and
//     the launcher, which has not heard it for UnheardAfter, 3 s, either, evicts it at once. Where no peer is heard that
//     knows the host, the launcher counts the lease itself.
//   - A host is paused and goes on within the lease, as a virtual machine that moves: nothing is lost. One that announced
//     a move, or has virtual GPUs, has MoveLease, 120 s. Afterwards its peers have ReunionGrace, 10 s, to hear it again
//     before their evidence counts. A host that was itself paused distrusts its ears for one lease.
//   - A host is cut off from one peer, but not from the launcher: after 5 s without an answer over the link users read of
//     it. PreWarning, 5 s, before the lease ends (at least LinkLease, 6 s), the end that misses the other warns the
//     launcher; others report what they miss, too. After the lease, and EvidenceGrace, 5 s, from the first warning, the
//     launcher evicts one of the two.
//   - A host is cut off from many peers: users read of each path after 5 s. When the leases end, 30 s, the launcher
//     evicts the host that misses the most others, or that more than half of the hosts which hear each other agree on. Of
//     two groups that do not hear each other the larger goes on.
//   - A host is cut off from all, the launcher included: it is evicted after 30 s like one that died, and ends its ranks
//     by itself after 35 s.
//   - A new host is not reached by one of the others while a world is formed: a line after FormNoticeAfter, 4 s; evicted
//     after the lease, 30 s and at least 6 s, and EvidenceGrace, 5 s, more if no more than half of the others report it.
//     Joiners have no vote against members.
//   - A host is cut off from the launcher alone: the launcher logs in again and again. If the connection has ended, the
//     launcher counts the lease: it evicts the host 30 s after it last heard it. If the connection stands and is silent,
//     its peers hear it, and it knows from them that the launcher lives: it waits for Launcher(lease), 35 s, and
//     MinLauncherLease, 30 s, more. After these 65 s it ends its ranks, and the launcher evicts it at the latest when its
//     peers have missed it for the lease, after 95 s.
//   - The launcher is cut off from all of several hosts: it is isolated, a line after 5 s; it evicts no host and begins
//     no world. The hosts do without it for Launcher(lease), 35 s, and then end the job; the launcher ends it
//     AbandonGrace, 5 s, later.
//   - The launcher's machine dies, or is paused: each host asks its peers. If none of them hears the launcher for
//     Launcher(lease), 35 s, the job ends, or another launcher takes over where there is one. One that is back before
//     loses nothing. Ctrl-Z is announced, and suspends that limit.
//   - The launcher's process ends: all connections end, and no host hears it any more. After the 2 s, or for a resident
//     daemon the minute, of resume.Timeouts the job ends, or another launcher takes over.
//
// A lease that the user gives (--lease) takes the place of Lease and MoveLease.
//
// Tests run at another speed: with GORUN_TIME_SCALE=0.2 in the launcher's environment every duration of Timing is a
// fifth, on the hosts too (wire.JobOptions.TimeScale). A lease given by the user stays as it is.
package liveness
