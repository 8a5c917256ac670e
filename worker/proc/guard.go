package proc

import "errors"

// LifelineFD is the descriptor at which a guarded daemon finds its lifeline.
const LifelineFD = 3

// DaemonName is what a guardian calls its daemon, the first of its arguments: Sweep knows daemons by them.
const DaemonName = "gorun"

// ErrGuardianDied is the cause with which a daemon's Lifeline ends.
var ErrGuardianDied = errors.New("the guardian of the daemon was killed")
