// Package launchers is where the launchers of jobs run, and what they keep for those who ask for their jobs, or carry them on.
//
// A Registration lists a job where ps, top and stop find it: in the directory of its record (package jobs), with a socket at
// which it answers. A launcher at a terminal calls Begin and never waits for a file system: a goroutine saves the latest
// record, and End gives it a limited time for the rest. Its job runs as well where it cannot be listed.
//
// Start runs a launcher in a session of its own and waits until it reports that its job runs, or fails. Such a launcher
// finds Variable in its environment and calls Open: its Launcher is what it has in place of a terminal, and each change of
// its record is on the file system when Update returns. End is last.
//
// A Runner starts launchers on the host of a cluster's daemon, for users who are elsewhere. Some hosts of the cluster are
// the job's electors (packages authority and standing): the launcher's Replicator sends them a handover whenever there is
// a new snapshot, and between snapshots that it is alive. When it falls silent for a lease they choose a host, whose Runner
// starts a successor. A Replicator owns goroutines from Start to Close, a Runner one for each launcher.
package launchers
