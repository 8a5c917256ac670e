package gossip

import (
	"bytes"
	"log/slog"
	"math"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/liveness"
)

// TestLeaseOfMany: how long a member may be silent does not grow with the number of members.
func TestLeaseOfMany(t *testing.T) {
	const interval = time.Second
	for _, lease := range []time.Duration{time.Second, 2 * time.Second, 30 * time.Second, 120 * time.Second} {
		for members := range 3000 {
			scale := max(1, math.Log10(max(1, float64(members)))) // as memberlist's suspicionTimeout has it
			waits := float64(suspicion(lease, interval, members)) * scale
			if least := lease.Seconds(); waits < least-1e-9 || waits > least+scale*interval.Seconds() {
				t.Fatalf("of %d members one may be silent for %.1f s, the lease is %v", members, waits, lease)
			}
		}
	}

	const count = 20
	key := bytes.Repeat([]byte{7}, 32)
	var all []*Gossip
	for id := range count {
		g, err := Start(Config{ID: id, Job: "test", Key: key, Bind: "127.0.0.1", Advertise: "127.0.0.1", Log: slog.New(slog.DiscardHandler)})
		must.Do(t, err)
		defer g.Close()
		if all = append(all, g); id == 0 {
			continue
		}
		must.Do(t, g.Join(t.Context(), []string{all[0].Addr()}))
	}
	// A host that knows all of them waits for some 30 s and not for 39 s.
	first := all[0]
	known, mult := 0, 0
	for deadline := time.Now().Add(20 * time.Second); known < count && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		first.mu.Lock()
		known, mult = len(first.members), first.config.SuspicionMult
		first.mu.Unlock()
	}
	if want := suspicion(liveness.Default().Lease, first.config.ProbeInterval, count); known < count || mult != want || mult == 30 {
		t.Errorf("with %d of %d members memberlist's factor is %d, want %d", known, count, mult, want)
	}
}
