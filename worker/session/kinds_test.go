package session_test

import (
	"context"
	"testing"

	"gorun/collective"
	"gorun/contrib/must"
	"gorun/worker/session"
	"gorun/worker/shm"
)

// realEngine forgets the number of a process that leaves.
type realEngine struct{ *collective.Engine }

func (e realEngine) Leave(_ int, epoch uint32, rank int) { e.Engine.Leave(epoch, rank) }

// startReal starts a server with a real engine: a world of one host.
func startReal(t testing.TB, size int) *host {
	return startRealBehind(t, size, func(e session.Engine) session.Engine { return e })
}

// startRealBehind puts something between the server and the engine.
func startRealBehind(t testing.TB, size int, behind func(session.Engine) session.Engine) *host {
	t.Helper()
	return startConfigured(t, size, collective.Config{}, behind)
}

func startConfigured(t testing.TB, size int, cfg collective.Config, behind func(session.Engine) session.Engine) *host {
	t.Helper()
	h := &host{pool: shm.NewPool(1 << 30), engine: newEngine(size, nil)}
	cfg.Alloc = h.pool
	e := collective.New(cfg)
	h.real = e
	member := collective.HostRanks{Name: "host1"}
	for rank := range size {
		member.Ranks = append(member.Ranks, rank)
	}
	must.Do(t, e.SetWorld(collective.EngineWorld{Epoch: 5, Hosts: []collective.HostRanks{member}, Size: size}))
	h.serve(t, behind(realEngine{e}), member.Ranks)
	return h
}

// serve starts the server and the engine behind it.
func (h *host) serve(t testing.TB, engine session.Engine, ranks []int) {
	t.Helper()
	h.server = session.New(session.Config{Job: "test", Engine: engine, ArenaLimit: 1 << 30})
	var err error
	if h.name, err = h.server.Listen(); err != nil {
		t.Fatal(err)
	}
	for _, rank := range ranks {
		h.server.Expect(rank, token(rank))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, stopped := make(chan error, 1), make(chan error, 1)
	go func() { ended <- h.server.Run(ctx) }()
	go func() { stopped <- h.real.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		h.real.Close()
		<-stopped
		h.pool.Close()
	})
}
