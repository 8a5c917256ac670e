package ranks

import (
	"maps"
	"slices"

	"gorun/rendezvous/wire"
	"gorun/worker/signs"
)

// process is one process, which has its number in the job for good.
type process struct {
	token   [32]byte
	started bool // it was started, or was to be
	pid     int  // 0 if it could not be started
	running bool
	aborted int          // the exit code that it gave MPI_Abort, 0 if it did not call it
	dropped bool         // it was ended because the roster has it no more
	exit    *wire.Exited // nil while it has not ended
	memory  signs.Memory // of the control group in which it was started, or was when it had begun a session
	noted   int          // the process with that session
}

// processes are those of this host, by number.
type processes map[int]*process

// of returns what is known of a process.
func (all processes) of(number int) *process {
	p := all[number]
	if p == nil {
		p = &process{}
		all[number] = p
	}
	return p
}

// numbers returns the numbers of all processes that are known, ascending.
func (all processes) numbers() []int { return slices.Sorted(maps.Keys(all)) }

// running returns the numbers of the processes that run, ascending.
func (all processes) running() []int {
	return slices.DeleteFunc(all.numbers(), func(number int) bool { return !all[number].running })
}
