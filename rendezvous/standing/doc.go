// Package standing implements the resident daemons of a cluster. They outlive jobs and know each other by gossip;
// launchers that hold the cluster's key start jobs on them without ssh.
//
// A launcher asks any daemon. The daemon whose name sorts first holds the queue: it grants a job its slots when all of
// them are free, first come, first served. The launcher keeps the slots until its connection ends. When the queue
// holder is lost, the launcher registers its slots with the next one. An elastic job learns about slots that it gains
// or loses on the same connection.
//
// Then the launcher asks each host for a daemon of the job. That is a process of its own, as with ssh; this package
// only copies bytes between the two, on a stream of package resume. So the resident daemon may be replaced while a job
// runs, and whichever process dies, another one notices and cleans up. Every host also counts its slots itself: two
// queue holders, possible for moments after a host joins or leaves, cannot put two jobs into the same slots.
//
// Serve owns its goroutines and connections. It returns when they and the daemons of the jobs have ended, or leaves
// those daemons running if asked to. A Lease and a DaemonStream have one goroutine each until they are closed.
//
// The queue is in memory, without priorities or accounts. Everyone with the key may do everything, as the user that
// runs the daemons.
package standing
