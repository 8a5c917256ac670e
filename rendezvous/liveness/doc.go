// Package liveness decides which hosts are there. It does no I/O and reads no clock: events come in with the time, and
// verdicts come out.
//
//   - Peers decides, on each host, which peers to suspect. Gossip and links show it what they hear, and the host
//     reports each change to the launcher as wire.Evidence.
//   - Hosts decides, in the launcher, which hosts to evict. It keeps one State for each host, and weighs the evidence
//     against the signs of life that the launcher itself hears every second.
//   - LauncherLease decides, on each host, how long to wait for a launcher that is not heard.
//
// Gaps notices that a process was paused. The fields and methods of Timing hold every limit. With Default, and a
// lease of 30 s, this is what happens, in seconds after each event. The names are the cases of TestTimeline,
// which measures these figures in a simulation of all three deciders:
//
//	what happens                                a line    evicted   who decides, and the limit
//	a host's daemon is killed                   none      1.5       launcher: HangUpGrace
//	a host's daemon is killed, and ssh logs in  5         5         launcher: LoginGrace
//	a host loses power                          5         30        peers: Lease
//	a host loses power, and no other knows it   5         30        launcher: Lease
//	a host hangs                                5         30        peers: Lease
//	a host hangs with --lease 10                5         10        peers: the lease of the user
//	a host with virtual GPUs hangs              5         120       peers: MoveLease
//	a host is paused within its lease           5         never
//	a host moves                                5         never
//	a host moves and does not come back         5         120       peers: MoveLease
//	a host moves with --lease 10                5         10        peers: the lease of the user
//	a host has moved and hears no peer          5         10 later  peers: ReunionGrace, once it is back
//
//	a host is cut off from one peer             5         30        ballot: Lease, EvidenceGrace
//	a host is cut off from many                 5         30        ballot: Lease, EvidenceGrace
//	two groups do not hear each other           5         30        ballot: Lease, EvidenceGrace
//	a host is cut off from all                  5         30        peers: Lease; its ranks end after 37
//	a joiner is not reached by one              4         35        ballot: Lease, EvidenceGrace
//	a joiner is reached by none                 4         30        ballot: Lease
//
//	a host is cut off from the launcher         5         95        its ranks end after 65; peers: Lease
//	a connection to the launcher breaks         5         30        launcher: Lease; its ranks end after 30
//	a host's sshd ends with its sessions        5         30        launcher: Lease; its ranks end after 30
//	a host's sshd is restarted                  5         never
//	the launcher is cut off                     5         none      hosts end the job after 37, the launcher after 40
//	the launcher is paused for a short time     none      none
//	the launcher dies                           none      none      hosts end the job after 37
//	the launcher's process ends                 none      none      hosts end the job after 2
//
// Who decides:
//
//   - Launcher: it cannot reach the host, or no peer that has met the host is heard. LoginGrace takes the place of
//     HangUpGrace where only a finished login shows that a host answers, after the time that its last login took, at
//     most as long again.
//   - Peers: one peer reports the silence, and the launcher has not heard the host for UnheardAfter either.
//   - Ballot: the launcher hears the suspected host. A host goes at once if more than half of the voters report it and
//     none of them suspects another. Otherwise, EvidenceGrace after the first report, the host that misses the most
//     others goes; so hosts pre-warn the launcher PreWarning before a lease ends. Of two groups the larger stays, of
//     equal ones the one with the first host. Joiners have no vote against members. A lease over a link, or of a
//     joiner, lasts at least LinkLease.
//   - Host, about its launcher: it does without a silent launcher for Timing.Launcher(lease), 35 s, and then asks its
//     peers for BrokenGrace, 2 s, whether one of them hears it. While one that it has met does, it waits for
//     MinLauncherLease, 30 s, more. A host without ranks, before the first world and after their end, waits for
//     FirstConnection, 20 s. If the connection has ended, it asks at once; the daemon of a cluster then waits for ResidentGrace, 60 s, because its
//     resident daemon may be being replaced. Where another launcher may take over, which is so in a detached elastic
//     job of a cluster, the daemons wait for 180 s: MoveLease or the lease of the user, and
//     authority.SuccessionTimeout (launcher/launchers, Launcher.Replicate). Ctrl-Z is announced, and suspends the
//     limit.
//   - Host, in the start of a job of fixed size: it tries to reach the others for LinkTimeout, 15 s, and then reports
//     that it cannot continue. The start fails, unless a host is silent or was so within RejoinGrace. The links that a
//     large world begins without have the lease and LinkTimeout, 45 s. The hosts of an elastic job report NeverReached
//     instead.
//
// A launcher that hears none of several hosts is isolated: it evicts no host and begins no world. A host or a launcher
// that was paused itself grants all others their lease again.
//
// A host is also evicted without any silence. Hosts.LinkFailed takes a host's report that its link to a peer cannot
// resume, and evicts the peer at once. Further losses bypass the detector, because no one has to decide whether the
// host is there:
//
//   - A host reports that it cannot continue (wire.Failed about itself), or sends what no sound daemon sends: a world
//     of unknown hosts, or a fence that does not fit. It stays connected until the elastic policy begins a world
//     without it.
//   - The conversation with a host ends and cannot be renewed (Line.Kept is false): a local daemon, or a login that
//     fails before its daemon answers. The host is lost with it.
//   - The start of a job of fixed size takes longer than --start-timeout and waits for the host (launcher/start.go). A
//     silent host has its lease first.
//
// Tests run at another speed: GORUN_TIME_SCALE=0.2 in the launcher's environment multiplies the durations of Timing, on
// the hosts too (wire.JobOptions.TimeScale). PauseAfter, the lease of the user, and the limits of package resume and of
// logins, which begin before the scale is known, keep theirs.
package liveness
