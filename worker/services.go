package worker

import (
	"gorun/rendezvous/wire"
	"gorun/worker/compat"
)

// openServices prepares what serves MPI programs and ranks of stock Horovod.
func (d *daemon) openServices() {
	cfg := compat.Config{Job: d.job, Loop: d.loop, Out: d.out, Log: d.log}
	d.mpi = compat.NewMPI(cfg, d.abort)
	d.horovod = compat.NewHorovod(cfg, stockDaemon{d})
}

// stockDaemon is the daemon as the rendezvous of stock Horovod sees it.
type stockDaemon struct{ d *daemon }

func (s stockDaemon) World() compat.World           { return compat.World{Roster: s.d.roster, Epoch: s.d.began} }
func (s stockDaemon) Peers() *wire.Roster           { return s.d.peers.Load() }
func (s stockDaemon) Rejoining(msg *wire.Rejoining) { s.d.rejoining(msg) }

// abort ends a rank that called MPI_Abort and now waits to be killed. It counts as an exit with its code.
func (d *daemon) abort(process, code int) {
	if d.running[process] && d.aborted[process] == 0 {
		d.aborted[process] = code
		d.ranks.Kill(process)
	}
}
