package ssh_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/ssh"
)

// stuck returns an Open of which no more than so many bytes come before the end of ctx.
func stuck(ctx context.Context, b ssh.Binary, bytes int64) func() (io.ReadCloser, error) {
	open := b.Open
	return func() (io.ReadCloser, error) {
		in, err := open()
		if err != nil {
			return nil, err
		}
		return io.NopCloser(io.MultiReader(io.LimitReader(in, bytes), readerFunc(func([]byte) (int, error) {
			<-ctx.Done()
			return 0, io.ErrUnexpectedEOF
		}))), nil
	}
}

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
	applets := t.TempDir()
	busybox, hasBusybox := lookPath("busybox")
	if hasBusybox {
		if out, err := exec.Command(busybox, "--install", "-s", applets).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	bare := bareTools(t, "sleep", "grep")
	for i, tc := range []struct{ login, inner, path string }{
		{"/bin/sh", "/bin/sh", bare},
		{"bash", "bash", bare},
		{"mksh", "mksh", bare},
		{"csh", "/bin/sh", bare},
		{"busybox", applets + "/sh", applets},
	} {
		for size, name := range map[int64]string{0: "nothing came", 150<<10 + 1: "half of it came"} {
			t.Run(tc.login+"/"+name, func(t *testing.T) {
				t.Parallel()
				login, ok := lookPath(tc.login)
				if !ok {
					t.Skipf("needs %s: install the package of that name", tc.login)
				}
				if tc.login == "busybox" {
					login += " sh"
				}
				inner := tc.inner
				if p, ok := lookPath(inner); ok {
					inner = p
				}
				client, cache := shellHost(t, login, inner, tc.path, "")
				ssh.Hasty(client)
				ssh.Near(client)
				b := program(300<<10 + 100*i + int(size&1)) // no one else's
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				b.Open = stuck(ctx, b, size)
				ended := make(chan error, 1)
				conn := connect(t, client, "h")
				began := time.Now()
				go func() {
					_, err := conn.Bootstrap(ctx, b, nil)
					ended <- err
				}()
				must.Soon(t, "the upload's file is there", func() bool { return len(find(t, cache, ".up-*")) == 1 })
				must.Soon(t, "the binary runs", func() bool { return len(running(t, b.SHA256)) > 0 })
				for deadline := time.Now().Add(40 * time.Second); len(find(t, cache, ".up-*")) > 0 || len(running(t, b.SHA256)) > 0; time.Sleep(50 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Errorf("after %v there are %q and %q", time.Since(began), find(t, cache, ".up-*"), running(t, b.SHA256))
						break
					}
				}
				if ctx.Err() != nil {
					t.Error("the test ended it, not the host")
				}
				cancel()
				if err := <-ended; err == nil {
					t.Error("the launcher takes it for started")
				}
			})
		}
	}
}

// TestHostWaitsForOthers: a host waits for as long as another login fills its directory, which its launcher reports to
// it, and that one may take its time.
func TestHostWaitsForOthers(t *testing.T) {
	t.Parallel()
	client, _ := shellHost(t, "/bin/sh", "/bin/sh", bareTools(t, "sleep", "grep"), "")
	ssh.Hasty(client)
	b := program(64 << 10)
	n := uploads(&b)
	open := b.Open
	b.Open = func() (io.ReadCloser, error) {
		in, err := open()
		if err != nil {
			return nil, err
		}
		return io.NopCloser(readerFunc(func(p []byte) (int, error) {
			time.Sleep(700 * time.Millisecond)
			return in.Read(p[:min(len(p), 8<<10)])
		})), nil
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { converse(t, connect(t, client, "h"), b, "0027") })
	}
	wg.Wait()
	if n.Load() != 1 {
		t.Errorf("%d uploads, want 1", n.Load())
	}
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
	open := b.Open
	b.Open = func() (io.ReadCloser, error) { time.Sleep(1500 * time.Millisecond); return open() }
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
