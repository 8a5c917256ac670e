// Package standing is about daemons that outlive jobs: they know each other by gossip, and launchers that hold
// the cluster's key start jobs on them without ssh.
//
// A launcher asks any daemon; the one with the first name keeps the queue, and gives a job its slots when
// all of them are free, first come, first served. The slots are the launcher's until its connection ends; when
// the keeper goes, the launcher tells the next one what it has. An elastic job hears of more slots, and of those
// that go, on the same connection.
// Then it asks each host for a daemon of the job, which is a process of its own as with ssh: from there on
// this package only passes bytes on, by a stream of package resume. So the daemon that passes them on may be replaced
// while a job runs, and whatever dies, somebody notices who cleans up. Every host also counts by itself: two
// keepers, in the moments after a host joined or left, cannot put two jobs into the same slots.
//
// Serve owns its goroutines and connections, and returns when they have ended, and the daemons of jobs with them
// unless it is to leave those. A Lease and a Stream have a goroutine each until they are closed. What
// is not here: the queue is in memory, first come, first served, without priorities or accounts; everyone
// with the key may do everything, as the user that runs the daemons.
package standing
