package worker

import (
	"slices"

	"gorun/rendezvous/wire"
)

// program returns what a rank runs and where: its own program or the job's, behind the user's wrapper.
func (d *daemon) program(r wire.Rank, gpu string) (argv []string, dir string) {
	argv, dir = d.job.Argv, d.job.Dir
	if len(r.Argv) > 0 {
		argv, dir = r.Argv, r.Dir
	}
	return slices.Concat(r.Fill(d.job.Wrapper, gpu), argv), dir
}
