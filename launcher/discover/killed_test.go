package discover_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/discover"
	"gorun/launcher/hosts"
)

// TestLauncherIsKilled: what a script and a command for moves have started ends although no one is left to end it.
func TestLauncherIsKilled(t *testing.T) {
	if kind := os.Getenv("DISCOVER_TEST_RUN"); kind != "" {
		watchForever(t, kind)
		return
	}
	for _, kind := range []string{"script", "moves"} {
		t.Run(kind, func(t *testing.T) {
			// The file is a FIFO that each of the processes holds: it comes to its end when the last of them is gone.
			fifo := filepath.Join(t.TempDir(), "held")
			must.Do(t, syscall.Mkfifo(fifo, 0o600))
			launcher := exec.Command(os.Args[0], "-test.run=^TestLauncherIsKilled$")
			launcher.Env = append(os.Environ(), "DISCOVER_TEST_RUN="+kind, "HELD="+fifo)
			must.Do(t, launcher.Start())
			read, err := os.Open(fifo) // waits for who writes
			must.Do(t, err)
			defer read.Close()
			must.Do(t, read.SetReadDeadline(time.Now().Add(30*time.Second)))
			buf := make([]byte, len("both"))
			if n, err := read.Read(buf); string(buf[:n]) != "both" {
				t.Fatalf("read %q, %v", buf[:n], err)
			}
			launcher.Process.Kill()
			launcher.Wait()
			if _, err := read.Read(buf); err == nil || !strings.Contains(err.Error(), "EOF") {
				t.Errorf("the processes are still there: %v", err)
			}
		})
	}
}

// watchForever is the launcher that is killed.
func watchForever(t *testing.T, kind string) {
	const both = `exec 9>"$HELD"; sleep 1000 & printf both >&9; sleep 1000; true`
	note := func(format string, args ...any) { t.Logf(format, args...) }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if kind == "moves" {
		discover.Moves{Command: both, Env: os.Environ()}.Watch(ctx, func(discover.Move) {}, note)
		return
	}
	s := script(both, 1)
	s.Limit = time.Minute
	fmt.Println(s.Watch(ctx, func([]hosts.ListedHost) {}, note))
}
