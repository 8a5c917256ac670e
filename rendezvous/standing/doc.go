// Package standing is about daemons that outlive jobs: they know each other by gossip, and launchers that hold
// the cluster's key start jobs on them without ssh.
//
// A launcher asks any daemon; the one with the first name keeps the queue, and gives a job its slots when
// all of them are free, first come, first served. The slots are the launcher's until its connection ends; when
// the keeper goes, the launcher tells the next one what it has. An elastic job hears of more slots, and of those
// that go, on the same connection.
// Then it asks each host for a daemon of the job, which is a process of its own as with ssh: from there on
// the connection is that process's standard input and output, and this package only passes bytes on. So
// whatever dies, the end of a stream tells those who must clean up. Every host also counts by itself: two
// keepers, in the moments after a host joined or left, cannot put two jobs into the same slots.
//
// Serve owns its goroutines, the connections and the daemons of jobs, and returns when they have ended. What
// is not here: the queue is in memory, first come, first served, without priorities or accounts; everyone
// with the key may do everything, as the user that runs the daemons.
package standing
