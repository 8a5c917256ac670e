package worker

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"gorun/rendezvous/wire"
	"gorun/worker/pmi"
	"gorun/worker/rankenv"
)

// openPMI prepares for ranks that are MPI programs; those that are not never ask.
func (d *daemon) openPMI(ctx context.Context) {
	if d.roster.Epoch > 1 {
		return // MPI's world never changes
	}
	cfg := pmi.Config{Job: d.job.ID, Size: d.roster.Size, Programs: map[int]int{}, Log: d.log,
		Fence: func(number uint64, pairs map[string]string) {
			d.out.Write(&wire.Fence{Number: number, Pairs: pairs})
		},
		Abort: func(rank, code int, message string) {
			d.log.Info("MPI_Abort", "rank", rank, "code", code, "message", message)
			d.post(ctx, func() { d.abort(rank, code) })
		},
		Name: func(rank int, asks, service, port string) {
			d.out.Write(&wire.Name{Rank: rank, Asks: asks, Service: service, Port: port})
		},
		Stuck: func(ended int, waiting []int) {
			d.out.Write(&wire.Stuck{Ended: ended, Waiting: waiting})
		},
	}
	cfg.Broken = func(rank int, why error) {
		d.out.Write(&wire.Log{Text: fmt.Sprintf("rank %d is cut off from PMI: %v", rank, why)})
	}
	for _, p := range d.roster.Peers {
		cfg.Hosts = append(cfg.Hosts, p.Ranks)
	}
	for _, r := range d.roster.Ranks {
		cfg.Local = append(cfg.Local, r.Rank)
		cfg.Programs[r.Rank] = r.Program
	}
	d.pmi = pmi.New(cfg)
	if d.job.PMIPort {
		port, err := d.pmi.Listen()
		if err != nil {
			d.log.Warn("MPI programs would not find the other ranks", "err", err)
			return
		}
		d.pmiPort = port
	}
}

// abort ends a rank that called MPI_Abort and now waits to be killed. It counts as an exit with its code.
func (d *daemon) abort(rank, code int) {
	if code &= 0xff; code == 0 {
		code = 1 // an abort is no success, whatever the program says
	}
	if d.running[rank] && d.aborted[rank] == 0 {
		d.aborted[rank] = code
		d.ranks.Kill(rank)
	}
}

// pmiFor connects a rank that is about to start, and returns what it inherits and where it finds us.
func (d *daemon) pmiFor(r wire.Rank) (*os.File, *rankenv.PMI, error) {
	if d.roster.Epoch > 1 {
		return nil, nil, nil
	}
	if d.pmiPort != nil {
		return nil, &rankenv.PMI{Port: d.pmiPort.Addr(), ID: int(d.pmiPort.Expect(r.Rank))}, nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket for PMI of rank %d: %w", r.Rank, err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // ours: the runtime waits for it
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("prepare socket for PMI of rank %d: %w", r.Rank, err)
	}
	d.pmi.Serve(r.Rank, os.NewFile(uintptr(fds[0]), "pmi"))
	return os.NewFile(uintptr(fds[1]), "pmi"), &rankenv.PMI{}, nil
}
