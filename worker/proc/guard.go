package proc

import "errors"

// LifelineFD is the descriptor at which a guarded daemon finds its lifeline.
const LifelineFD = 3

// DaemonName is what a supervisor calls its daemon, the first of its arguments: Sweep knows daemons by them.
const DaemonName = "gorun"

// ErrSupervisorDied is the cause with which a daemon's Lifeline ends.
var ErrSupervisorDied = errors.New("the supervisor of the daemon was killed")
