package ssh_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/ssh"
)

// running lists the processes of which the command line has a text.
func running(t *testing.T, text string) (found []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.Do(t, err)
	for _, name := range lines {
		if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), text) {
			found = append(found, filepath.Dir(name)+": "+string(line))
		}
	}
	return found
}

// TestHostsSideEndsByItself: when nothing comes from the launcher any more, and no connection ends, what the launcher
// began on the host ends, and leaves no file, whichever shell runs there and however much had come.
func TestHostsSideEndsByItself(t *testing.T) {
	others := 0
	inShells(t, bareTools(t, "sleep", "grep"), []string{"/bin/sh", "bash", "mksh", "csh", "busybox"}, func(t *testing.T, login, inner, path string) {
		for size, name := range map[int64]string{0: "nothing came", 150 << 10: "half of it came"} {
			others++
			b := program(300<<10 + others) // no one else's
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				client, cache := shellHost(t, login, inner, path, "")
				ssh.Hasty(client)
				ssh.Near(client)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				readBy(&b, func(in io.Reader) io.Reader {
					return io.MultiReader(io.LimitReader(in, size), readerFunc(func([]byte) (int, error) {
						<-ctx.Done()
						return 0, io.ErrUnexpectedEOF
					}))
				})
				ended := make(chan error, 1)
				conn := connect(t, client, "h")
				go func() {
					_, err := conn.Bootstrap(ctx, b, nil)
					ended <- err
				}()
				must.Soon(t, "the upload's file is there", func() bool { return len(find(t, cache, ".up-*")) == 1 })
				must.Soon(t, "the binary runs", func() bool { return len(running(t, b.SHA256)) > 0 })
				must.Soon(t, "nothing of it is left", func() bool { return len(find(t, cache, ".up-*")) == 0 && len(running(t, b.SHA256)) == 0 })
				if ctx.Err() != nil {
					t.Error("the test ended it, not the host")
				}
				cancel()
				if err := <-ended; err == nil {
					t.Error("the launcher takes it for started")
				}
			})
		}
	})
}

// TestHostWaitsForOthers: a host waits for as long as another login fills its directory, which its launcher reports to
// it, and that one may take its time.
func TestHostWaitsForOthers(t *testing.T) {
	t.Parallel()
	client, _ := shellHost(t, "/bin/sh", "/bin/sh", bareTools(t, "sleep", "grep"), "")
	ssh.Hasty(client)
	b := program(64 << 10)
	n := uploads(&b)
	readBy(&b, func(in io.Reader) io.Reader {
		return readerFunc(func(p []byte) (int, error) {
			time.Sleep(700 * time.Millisecond)
			return in.Read(p[:min(len(p), 8<<10)])
		})
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { converse(t, connect(t, client, "h"), b, "0027") })
	}
	wg.Wait()
	expect(t, "uploads", n, 1)
}

// TestSilentConnection: a connection of which nothing comes any more is ended, so that another one may take its place,
// but not one that is slow.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	srv, h := startServer(t), newHome(t)
	srv.mute, srv.unheard = true, true
	client := h.client(t)
	ssh.Hasty(client)
	_, err := connect(t, client, srv.addr).Bootstrap(testContext(t), program(1<<10), nil)
	wantError(t, err, srv.addr, ssh.StepStart, "nothing came from the host for 1s", "does this machine have another address now?")
	if !errors.Is(err, ssh.ErrBroken) {
		t.Error("it is not worth another try")
	}

	slow := startServer(t)
	slow.env = []string{"XDG_CACHE_HOME=" + h.path("cache")}
	b := program(64 << 10)
	readBy(&b, func(in io.Reader) io.Reader { time.Sleep(1500 * time.Millisecond); return in })
	converse(t, connect(t, client, slow.addr), b, "0022")
}

// TestSlowLogin: a host with slow login files gets one command beside its first, however long that takes.
func TestSlowLogin(t *testing.T) {
	t.Parallel()
	srv, h := startServer(t), newHome(t)
	srv.env = []string{"XDG_CACHE_HOME=" + h.path("cache")}
	srv.login = "echo >>" + h.path("logins") + "; sleep 3; "
	client := h.client(t)
	ssh.Hasty(client)
	converse(t, connect(t, client, srv.addr), program(64<<10), "0022")
	if logins, err := os.ReadFile(h.path("logins")); err != nil || len(logins) != 2 {
		t.Errorf("%d commands, %v", len(logins), err)
	}
}

// TestHostGivesUp: when the host's side has ended by itself, in the middle of what it unpacks, another try may go well.
func TestHostGivesUp(t *testing.T) {
	t.Parallel()
	srv, h := startServer(t), newHome(t)
	cache := h.path("cache")
	srv.env, srv.stall = []string{"XDG_CACHE_HOME=" + cache}, 1<<20
	client := h.client(t)
	ssh.Hasty(client)
	ssh.FarAway(client)
	b := program(2 << 20)
	if _, err := connect(t, client, srv.addr).Bootstrap(testContext(t), b, nil); !errors.Is(err, ssh.ErrBroken) {
		t.Errorf("got %v", err)
	}
	must.Soon(t, "nothing of the upload is left", func() bool { return len(find(t, cache, ".up-*")) == 0 && len(running(t, b.SHA256)) == 0 })
}
