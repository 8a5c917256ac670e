package session_test

import (
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
	return startConfigured(t, size, collective.Config{}, nil)
}

// startConfigured may put something between the server and the engine.
func startConfigured(t testing.TB, size int, cfg collective.Config, behind func(session.Engine) session.Engine) *host {
	t.Helper()
	h := &host{pool: shm.NewPool(1 << 30), engine: newEngine(size, nil)}
	cfg.Alloc = h.pool
	h.real = collective.New(cfg)
	ranks := below(size)
	must.Do(t, h.real.SetWorld(collective.EngineWorld{Epoch: 5, Hosts: []collective.HostRanks{{Name: "host1", Ranks: ranks}}, Size: size}))
	var engine session.Engine = realEngine{h.real}
	if behind != nil {
		engine = behind(engine)
	}
	h.serve(t, session.Config{Engine: engine}, ranks)
	return h
}
