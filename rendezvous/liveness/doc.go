// Package liveness decides whether a host is there. It does no I/O and has no clock: events come in with the time, verdicts come out.
//
// Each host watches its peers (Peers) by gossip and by its links, and reports what it finds as wire.Evidence. The launcher hears every
// host by a sign of life each second, and decides from that and from the evidence. A host without its launcher decides by LauncherLease
// how long to wait for it. All limits are fields of Timing, and its methods. What happens, and when (Default, lease 30 s):
//
//   - A host's daemon ends or is killed: its kernel ends its connections. The launcher, or a peer, notices at once; a host that cannot be
//     reached for HangUpGrace, 1.5 s, is evicted (LoginGrace, 5 s, where only a finished login shows that a host answers).
//   - A host dies without a word (power, kernel) or hangs: the connection to the launcher stands or breaks, and nothing is heard. After
//     NoticeAfter, 5 s, users read that the host is silent. After Lease, 30 s, its peers report it, and the launcher, which has not
//     heard it for UnheardAfter, 3 s, either, evicts it at once. Where no peer is heard that knows the host, the launcher counts the
//     lease itself.
//   - A host is paused and goes on within the lease, as a virtual machine that moves: nothing is lost. One that announced a move, or has
//     virtual GPUs, has MoveLease, 120 s. Afterwards its peers have ReunionGrace, 10 s, to hear it again before their evidence counts. A
//     host that was itself paused distrusts its ears for one lease.
//   - A host is cut off from one peer, but not from the launcher: after 5 s without an answer over the link users read of it. PreWarning,
//     5 s, before the lease ends (at least LinkLease, 6 s), the end that misses the other warns the launcher; others report what they
//     miss, too. After the lease, and EvidenceGrace, 5 s, from the first warning, the launcher evicts one of the two.
//   - A host is cut off from many peers: more than half of the hosts that hear each other agree, and the launcher evicts it as soon as
//     their leases end. Of two groups that do not hear each other the larger goes on.
//   - A new host is not reached by one of the others while a world is formed: a line after FormNoticeAfter, 4 s; evicted after the lease,
//     at least 6 s, and EvidenceGrace if fewer than half of the others report it. Joiners have no vote against members.
//   - A host is cut off from the launcher alone: the launcher logs in again and again. If the connection has ended, the launcher counts the
//     lease: it evicts the host 30 s after it last heard it. If the connection stands and is silent, the peers' evidence counts, which
//     hear the host; it gives its launcher up by itself, as below.
//   - The launcher is cut off from all of several hosts: it is isolated, evicts no host and begins no world. The hosts do without it for
//     Launcher(lease), 35 s, and then end the job; the launcher ends it AbandonGrace, 5 s, later.
//   - The launcher dies or is paused: each host asks its peers. None of them hears it for Launcher(lease): the job ends, or another
//     launcher takes over where there is one. Ctrl-Z is announced, and suspends that limit.
//
// A lease that the user gives (--lease) takes the place of Lease and MoveLease.
//
// Tests run at another speed: with GORUN_TIME_SCALE=0.2 in the launcher's environment every duration of Timing is a fifth, on the hosts
// too (wire.JobOptions.TimeScale). A lease given by the user stays as it is.
package liveness
