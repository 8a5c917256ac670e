package measure_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/collective/admit/admittest"
	"gorun/contrib/must"
	"gorun/topology/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, key []byte) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- measure.Serve(ctx, l, key) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestProbe(t *testing.T) {
	secret := []byte("secret")
	wrong, right := serve(t, measure.Key(secret, 1)), serve(t, measure.Key(secret, 2))
	// The first address is another host's.
	r, err := measure.Probe(t.Context(), []string{wrong, right}, measure.Key(secret, 2), 20*time.Millisecond)
	if err != nil || r.RTT <= 0 || r.RTT > 1 || r.Bandwidth < 1e6 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = measure.Probe(t.Context(), []string{right}, measure.Key(secret, 2), 0)
	if err != nil || r.RTT <= 0 || r.Bandwidth != 0 {
		t.Errorf("no bandwidth was asked for: %+v, %v", r, err)
	}
	if _, err := measure.Probe(t.Context(), []string{wrong}, measure.Key(secret, 2), 0); err == nil {
		t.Error("a wrong key was good enough")
	}
	if _, err := measure.Probe(t.Context(), nil, nil, 0); err == nil {
		t.Error("no error without an address")
	}
}

// TestHostileProbes: who opens connections again and again, and sends nothing or a wrong answer, keeps no probe out.
func TestHostileProbes(t *testing.T) {
	key := measure.Key([]byte("secret"), 1)
	addr := serve(t, key)
	first, err := net.Dial("tcp", addr)
	must.Do(t, err)
	defer first.Close()
	admittest.Flood(t, addr, 700, "")
	began := time.Now()
	io.Copy(io.Discard, first)
	if stayed := time.Since(began); stayed > time.Second {
		t.Errorf("the oldest of 701 stays for %v more", stayed)
	}
	admittest.Flood(t, addr, 20, strings.Repeat("x", 32))
	if r, err := measure.Probe(t.Context(), []string{addr}, key, 0); err != nil || r.RTT <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCancel: a client that waits for a silent server can be called off.
func TestCancel(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := measure.Probe(ctx, []string{l.Addr().String()}, nil, 0); err == nil {
		t.Error("no error")
	}
}
