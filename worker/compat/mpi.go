package compat

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"gorun/rendezvous/wire"
	"gorun/worker/loop"
	"gorun/worker/pmi"
	"gorun/worker/rankenv"
)

// MPI is the process manager of the ranks of this host that are MPI programs.
type MPI struct {
	cfg    loop.Component
	abort  func(process, code int)
	server *pmi.Server // nil until the ranks start
	port   *pmi.Port   // nil unless the job wants one
}

// NewMPI returns a process manager that serves nothing yet. abort is called on the loop when a rank has called
// MPI_Abort, and waits to be killed; its code is never 0.
func NewMPI(cfg loop.Component, abort func(process, code int)) *MPI {
	return &MPI{cfg: cfg, abort: abort}
}

// Open prepares for the ranks of a roster. Only the first world has MPI: its world never changes.
func (m *MPI) Open(ctx context.Context, r *wire.Roster) {
	if r.Epoch > 1 {
		return
	}
	m.server = pmi.New(m.configFor(ctx, r))
	if !m.cfg.Job.PMIPort {
		return
	}
	port, err := m.server.Listen()
	if err != nil {
		m.cfg.Log.Warn("MPI programs would not find the other ranks", "err", err)
		return
	}
	m.port = port
}

func (m *MPI) configFor(ctx context.Context, r *wire.Roster) pmi.Config {
	out := m.cfg.Out
	cfg := pmi.Config{Job: m.cfg.Job.ID, Size: r.Size, Programs: map[int]int{}, Log: m.cfg.Log,
		Fence: func(number uint64, pairs map[string]string) { out.Write(&wire.Fence{Number: number, Pairs: pairs}) },
		Abort: func(rank, code int, message string) {
			m.cfg.Log.Info("MPI_Abort", "rank", rank, "code", code, "message", message)
			if code &= 0xff; code == 0 {
				code = 1 // an abort is no success, whatever the program returns
			}
			m.cfg.Loop.Post(ctx, func() { m.abort(rank, code) })
		},
		Name: func(rank int, asks, service, port string) {
			out.Write(&wire.Name{Rank: rank, Asks: asks, Service: service, Port: port})
		},
		Stuck: func(ended int, waiting []int) { out.Write(&wire.Stuck{Ended: ended, Waiting: waiting}) },
		Say:   func(text string) { m.cfg.Say("%s", text) },
	}
	for _, p := range r.Peers {
		cfg.Hosts = append(cfg.Hosts, p.Ranks)
	}
	for _, rank := range r.Ranks {
		cfg.Local = append(cfg.Local, rank.Rank)
		cfg.Programs[rank.Rank] = rank.Program
	}
	return cfg
}

// Connect connects a rank of a roster that is about to start. It returns what the rank inherits, nil if it is to come
// to a port, and where it finds the process manager, nil if there is none for it.
func (m *MPI) Connect(roster *wire.Roster, r wire.Rank) (*os.File, *rankenv.PMI, error) {
	if roster.Epoch > 1 {
		return nil, nil, nil
	}
	if m.port != nil {
		return nil, &rankenv.PMI{Port: m.port.Addr(), ID: int(m.port.Expect(r.Rank))}, nil
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
	m.server.Serve(r.Rank, os.NewFile(uintptr(fds[0]), "pmi"))
	return os.NewFile(uintptr(fds[1]), "pmi"), &rankenv.PMI{}, nil
}

// Receive takes what the launcher sends to MPI programs: a barrier between hosts is passed, or a published name is
// known.
func (m *MPI) Receive(msg wire.Message) {
	if m.server == nil {
		return
	}
	switch msg := msg.(type) {
	case *wire.Fence:
		m.server.Release(msg.Number, msg.Pairs)
	case *wire.Name:
		m.server.Named(msg.Rank, msg.OK, msg.Port)
	}
}

// Inside reports whether a process has begun with MPI and not left it, for all that was read from it yet.
func (m *MPI) Inside(process int) bool { return m.server != nil && m.server.Inside(process) }

// Left reports whether a process that has ended left MPI. It may wait for the last message of the process.
func (m *MPI) Left(process int) bool { return m.server.Left(process) }

// Began reports whether a process has begun with MPI by this process manager, or none serves here.
func (m *MPI) Began(process int) bool { return m.server == nil || m.server.Began(process) }

// Ended takes note of the end of a process.
func (m *MPI) Ended(process int) {
	if m.server != nil {
		m.server.Ended(process)
	}
}

// Close ends the service.
func (m *MPI) Close() {
	if m.port != nil {
		m.port.Close()
	}
	if m.server != nil {
		m.server.Close()
	}
}
