package worker

import (
	"fmt"
	"log/slog"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/schedule"
	"gorun/rendezvous/wire"
	"gorun/worker/network"
	"gorun/worker/shm"
)

// engine is the collective engine of this host with what it is made from.
type engine struct {
	*collective.Engine
	prober  *collective.LinkProber
	results *shm.Pool // memory of results
}

// openEngine makes the engine of a job, which sends by a network. memory limits the results; broken takes peers with
// which it cannot go on.
func openEngine(job *wire.Job, net *network.Network, memory int64, log *slog.Logger,
	broken func(peer int, err error)) (*engine, error) {
	by, err := schedule.ParseAlgorithm(job.Algorithm)
	if err != nil {
		return nil, fmt.Errorf("check job: %w", err)
	}
	coding, err := kernel.ParseCoding(job.Coding)
	if err != nil {
		return nil, fmt.Errorf("check job: %w", err)
	}
	e := &engine{results: shm.NewPool(memory)}
	e.Engine = collective.New(collective.Config{Transport: net, Record: !job.Blind, Alloc: e.results, Room: e.results.Room(), Log: log,
		Algorithm: by, Coding: coding, Broken: broken})
	e.prober = collective.NewLinkProber(e.Engine, net)
	return e, nil
}
