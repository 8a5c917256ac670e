package session_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// interpreter is a Python with numpy, like PYTHON in the Makefile, or without if there is no such; "" for none.
var interpreter = sync.OnceValue(func() string {
	first, err := exec.LookPath("python3")
	for _, exe := range []string{first, "/usr/bin/python3"} {
		if exe != "" && exec.Command(exe, "-c", "import numpy").Run() == nil {
			return exe
		}
	}
	if err != nil {
		return ""
	}
	return first
})

// python starts a program of the binding as one rank. It ends with the test.
func (h *host) python(t testing.TB, rank int, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	e2etest.DependsOn(t, "contrib/python")
	exe := interpreter()
	if exe == "" {
		t.Skip("python3 is not installed")
	}
	root, err := filepath.Abs("../../contrib/python")
	must.Do(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	secret := token(rank)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PYTHONPATH="+root, "PYTHONDONTWRITEBYTECODE=1", "GORUN_SOCKET="+h.name,
		"GORUN_TOKEN="+hex.EncodeToString(secret[:]), "GORUN_PROCESS="+strconv.Itoa(rank), "GORUN_TEST_SIZE="+strconv.Itoa(h.engine.size))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must.Do(t, cmd.Start())
	return cmd, &out
}

// TestPythonWorld runs the binding's own tests in worlds of several processes.
func TestPythonWorld(t *testing.T) {
	for _, size := range []int{1, 2, 3} {
		h := start(t, size).begin()
		var ranks []*exec.Cmd
		var outs []*bytes.Buffer
		for rank := range size {
			cmd, out := h.python(t, rank, "-m", "unittest", "tests.test_session_world")
			ranks, outs = append(ranks, cmd), append(outs, out)
		}
		for rank, cmd := range ranks {
			if err := cmd.Wait(); err != nil {
				t.Errorf("rank %d of %d: %v\n%s", rank, size, err, outs[rank])
			} else if !strings.Contains(outs[rank].String(), "\nOK\n") {
				t.Errorf("rank %d of %d ran no tests:\n%s", rank, size, outs[rank])
			}
		}
		must.Soon(t, "all left", func() bool { return len(h.engine.gone()) == size })
		if h.engine.pending() != 0 {
			t.Errorf("%d operations are left over", h.engine.pending())
		}
		h.stop()
	}
}

const stuck = `
from gorun.session import Session
from gorun.constants import *
s = Session.connect()
b = s.alloc(1 << 20)
b.view[0] = 1
h = s.submit(ALLREDUCE, "stuck", FLOAT32, (256,), b, b)
print("submitted", flush=True)
try:
    s.wait(h)
except Exception as e:
    print(type(e).__name__, e)
s.close()
`

// TestPythonKilled kills one of two ranks with -9 in the middle of an operation: the engine hears of it, the other
// rank's wait raises, and the memory of both is gone.
func TestPythonKilled(t *testing.T) {
	before := arenas(t)
	h := start(t, 3).begin()
	victim, _ := h.python(t, 0, "-c", stuck)
	other, out := h.python(t, 1, "-c", stuck)
	must.Soon(t, "both submitted", func() bool {
		h.engine.mu.Lock()
		defer h.engine.mu.Unlock()
		return len(h.engine.waiting["stuck"]) == 2
	})
	if n := arenas(t); n != before+2 {
		t.Errorf("%d regions are mapped, want 2 more than the %d before", n, before)
	}
	must.Do(t, victim.Process.Kill())
	victim.Wait()
	if err := other.Wait(); err != nil {
		t.Errorf("the other rank: %v", err)
	}
	if want := "submitted\nShutdown rank 0 left\n"; out.String() != want {
		t.Errorf("the other rank said %q, want %q", out, want)
	}
	must.Soon(t, "both left, memory unmapped", func() bool { return len(h.engine.gone()) == 2 && arenas(t) == before })
}

// TestPythonWithoutDaemon ends the daemon while a rank waits, and starts a rank with a wrong token.
func TestPythonWithoutDaemon(t *testing.T) {
	h := start(t, 2).begin()
	rank, out := h.python(t, 0, "-c", stuck)
	must.Soon(t, "submitted", func() bool { return h.engine.pending() == 1 })
	h.engine.holdBack()
	h.stop()
	if err := rank.Wait(); err != nil || !strings.Contains(out.String(), "Aborted the gorun daemon of this host is gone") {
		t.Errorf("daemon ended: %v\n%s", err, out)
	}

	h = start(t, 1)
	h.server.Expect(0, [32]byte{9})
	h.begin()
	rank, out = h.python(t, 0, "-c", "from gorun.session import Session; Session.connect()")
	if err := rank.Wait(); err == nil || !strings.Contains(out.String(), "not with this GORUN_TOKEN") {
		t.Errorf("wrong token: %v\n%s", err, out)
	}
}
