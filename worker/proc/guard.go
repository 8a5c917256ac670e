package proc

import "errors"

// LifelineFD is the descriptor of a supervised daemon's lifeline.
const LifelineFD = 3

// DaemonName is the daemon's first argument, which identifies daemons to Sweep.
const DaemonName = "gorun"

// ErrSupervisorDied is the cause of the end of a daemon's Lifeline.
var ErrSupervisorDied = errors.New("the supervisor of the daemon was killed")
