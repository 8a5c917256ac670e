package launcher

import (
	"slices"

	"gorun/launcher/failure"
	"gorun/rendezvous/wire"
)

// processes are the processes of the job, by number. In a job of fixed size they are numbered as its ranks.
type processes []process

// process is what the launcher knows about one process.
type process struct {
	host    int  // the id of its host
	spare   bool // it waits for its first world
	started bool
	exited  bool               // or it could not start
	failure *failure.RankError // nil unless it has failed
	split   *wire.Split        // where its time went, once it has ended; nil if it counted nothing
}

// place notes on which host a process runs.
func (p *processes) place(number, host int) {
	if number >= len(*p) {
		*p = append(*p, make([]process, number+1-len(*p))...)
	}
	(*p)[number].host = host
}

// on reports whether a process runs, or ran, on a host. A daemon may report only processes of its own.
func (p processes) on(host, number int) bool {
	return number >= 0 && number < len(p) && p[number].host == host
}

// at returns a process, the zero process if the job has none of that number.
func (p processes) at(number int) process {
	if number < 0 || number >= len(p) {
		return process{}
	}
	return p[number]
}

// started counts the processes that have started.
func (p processes) started() (n int) {
	for _, x := range p {
		if x.started {
			n++
		}
	}
	return n
}

// exited returns the numbers of the processes that have ended, and of the others.
func (p processes) exited() (ended, others []int) {
	for number, x := range p {
		if x.exited {
			ended = append(ended, number)
		} else {
			others = append(others, number)
		}
	}
	return ended, others
}

// hosts returns the host ids of all processes.
func (p processes) hosts() []int {
	ids := make([]int, len(p))
	for number, x := range p {
		ids[number] = x.host
	}
	return ids
}

// missing reports whether one of the ranks of a host has not started yet.
func (p processes) missing(ranks []wire.Rank) bool {
	return slices.ContainsFunc(ranks, func(r wire.Rank) bool { return !p.at(r.Process).started })
}
