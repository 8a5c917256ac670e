package ssh

import (
	"context"
	"fmt"
	"testing"
	"time"

	"gorun/contrib/must"
)

func mustEnter(t *testing.T, g *gate, key string) *pass {
	t.Helper()
	p, err := g.enter(t.Context(), key)
	must.Do(t, err)
	return p
}

// full reports whether another handshake with key would have to wait.
func full(g *gate, key string) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p, err := g.enter(ctx, key)
	if err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.leaveLocked(p)
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.servers[key]
	return g.inUse >= int(g.limit) || s != nil && s.inUse >= int(s.limit)
}

func TestGateLimits(t *testing.T) {
	g := newGate(time.Hour)
	var passes []*pass
	for range perServer {
		passes = append(passes, mustEnter(t, g, "a"))
	}
	if !full(g, "a") || full(g, "b") {
		t.Error("the limit of one server is not its own")
	}
	for len(passes) < atOnce {
		passes = append(passes, mustEnter(t, g, fmt.Sprint(len(passes))))
	}
	if !full(g, "e") {
		t.Errorf("more than %d at once", atOnce)
	}
	passes[0].done()
	if full(g, "e") || full(g, "a") {
		t.Error("a place given back is not free")
	}
	for _, p := range passes[1:] {
		p.done()
	}
	if g.inUse != 0 || g.servers["a"].inUse != 0 {
		t.Errorf("%d places in use at the end", g.inUse)
	}
}

func TestGateSlowsDownOncePerBurst(t *testing.T) {
	g := newGate(time.Hour)
	var passes []*pass
	for range perServer {
		passes = append(passes, mustEnter(t, g, "a"))
	}
	for _, p := range passes {
		p.dropped()
	}
	if g.limit != atOnce/2 || g.servers["a"].limit != perServer/2 {
		t.Errorf("limits %v and %v after one burst", g.limit, g.servers["a"].limit)
	}
	for range 20 {
		mustEnter(t, g, "a").dropped()
	}
	if g.limit != atLeast || g.servers["a"].limit != 1 {
		t.Errorf("limits %v and %v after many", g.limit, g.servers["a"].limit)
	}
	for range 1000 {
		mustEnter(t, g, "a").done()
	}
	if g.limit != atOnce || g.servers["a"].limit != perServer {
		t.Errorf("limits %v and %v do not recover", g.limit, g.servers["a"].limit)
	}
}

func TestGateLetsOthersPass(t *testing.T) {
	g := newGate(time.Hour)
	var passes []*pass
	for range perServer {
		passes = append(passes, mustEnter(t, g, "busy"))
	}
	got := make(chan *pass)
	go func() {
		p, _ := g.enter(context.Background(), "busy")
		got <- p
	}()
	mustEnter(t, g, "idle").done() // does not queue behind the one that waits
	passes[0].done()
	(<-got).done()

	ctx, cancel := context.WithCancel(context.Background())
	mustEnter(t, g, "busy")
	failed := make(chan error)
	go func() {
		_, err := g.enter(ctx, "busy")
		failed <- err
	}()
	cancel()
	if err := <-failed; err == nil {
		t.Error("entered a full gate")
	}
	if len(g.queue) != 0 {
		t.Error("a waiter that left is still in the queue")
	}
}

// TestGateHung: handshakes that hang keep out those with their own server, and no others.
func TestGateHung(t *testing.T) {
	g := newGate(time.Millisecond)
	var passes []*pass
	for range perServer {
		passes = append(passes, mustEnter(t, g, "a"))
	}
	for i := range atOnce {
		passes = append(passes, mustEnter(t, g, fmt.Sprint(i)))
	}
	if !full(g, "a") {
		t.Error("what hangs does not count with its server any more")
	}
	passes[0].dropped()
	for _, p := range passes[1:] {
		p.done()
	}
	passes[1].hangs() // too late
	if g.inUse != 0 || g.servers["a"].inUse != 0 {
		t.Errorf("%d places in use at the end, %d of the server", g.inUse, g.servers["a"].inUse)
	}
}
