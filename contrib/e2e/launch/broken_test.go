package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// breaker passes connections on to a host's sshd, and resets the first of them when it has passed on so many bytes from
// there, after a pause. It writes how many bytes that one had brought in the end.
const breaker = `import os, socket, struct, sys, threading, time
host, port, limit, pause, log = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
door = socket.create_server(("127.0.0.1", port))
open(log, "w").close()
def pump(source, to, count=None):
    try:
        while data := source.recv(65536):
            if count is not None:
                if 0 <= limit - count[0] <= len(data):
                    to.sendall(data[:limit - count[0]])
                    time.sleep(pause)
                    for s in (source, to):
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        s.shutdown(socket.SHUT_RD)
                        s.close()
                    with open(log, "a") as f: f.write("reset ")
                    return
                count[0] += len(data)
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    if count is not None:
        with open(log, "a") as f: f.write("%d " % count[0])
first = True
while True:
    near, _ = door.accept()
    far = socket.create_connection((host, 22))
    for s in (near, far):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=pump, args=(near, far), daemon=True).start()
    threading.Thread(target=pump, args=(far, near, [0] if first else None), daemon=True).start()
    first = False
`

// startBroken runs a job of two ranks whose first connection to host2 is reset when it has brought so many bytes.
func startBroken(c *e2etest.SSHCluster, limit int, pause time.Duration, args ...string) (r e2etest.Result, log string) {
	c.T.Helper()
	const port = 2222
	name := filepath.Join(c.Dir, "passed")
	os.Remove(name)
	cmd := c.Launcher().Command(c.T.Context(), e2etest.Python, "-c", breaker, c.Host(2).Address().String(), strconv.Itoa(port), strconv.Itoa(limit), fmt.Sprint(pause.Seconds()), name)
	var said bytes.Buffer
	cmd.Stderr = &said
	must.Do(c.T, cmd.Start())
	c.Await("breaker", func() bool { _, err := os.Stat(name); return err == nil })
	config := c.Config("broken", fmt.Sprintf("Host host2\n HostName 127.0.0.1\n Port %d\n HostKeyAlias host2\n", port))
	run, stdout, stderr := c.Command(append([]string{"--ssh-config", config, "-H", "host1,root@host2", "--no-tag-output"}, append(args, "sh", "-c", "echo on $(uname -n)")...)...)
	late := time.AfterFunc(time.Minute, func() { run.Process.Signal(syscall.SIGTERM) })
	defer late.Stop()
	run.Run()
	r = e2etest.Result{Code: run.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	cmd.Process.Kill()
	cmd.Wait()
	text, _ := os.ReadFile(name)
	return r, string(text) + said.String()
}

// silence matches the launcher's lines about a host that says nothing for a while, as on a busy machine.
var silence = regexp.MustCompile(`(?m)^gorun: (waiting for .*, silent|\S+ has been silent) for \d+ s\n`)

// TestBrokenAtStart: the first connection to a host is reset, at any byte of what the host sends from before the login
// until the job is over. The job goes well all the same.
func TestBrokenAtStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		step  int
		pause time.Duration
		cold  bool // the host has yet to get the binary
		slow  bool // each login takes two seconds, as where names are looked up in vain
		args  []string
	}{
		"at once":           {step: 510},
		"a little later":    {step: 690, pause: 30 * time.Millisecond, args: []string{"--connect-retry", "5"}},
		"with an upload":    {step: 810, cold: true},
		"elastic":           {step: 750, args: []string{"--min-np", "2", "--network-interfaces", "eth0"}},
		"by the system ssh": {step: 780, args: []string{"--ssh-command", "ssh"}},
		"by a slow ssh":     {step: 990, slow: true},
	} {
		if !testing.Short() {
			tc.step /= 3
		}
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewSSHCluster(t, 2)
			if tc.slow {
				slow := filepath.Join(c.Dir, "slow-ssh")
				must.Do(t, os.WriteFile(slow, []byte("#!/bin/sh\nsleep 2\nexec ssh \"$@\"\n"), 0o755))
				tc.args = []string{"--ssh-command", slow}
			}
			startBroken(c, -1, 0, tc.args...) // brings the binary
			resets, failed := 0, 0
			for limit := 1500; ; limit += tc.step {
				if tc.cold {
					c.Shell(c.Host(2), "rm -rf /root/.cache/gorun")
				}
				r, log := startBroken(c, limit, tc.pause, tc.args...)
				if !strings.Contains(log, "reset") {
					break // that is more than a whole job
				}
				resets++
				r.Stderr = silence.ReplaceAllString(r.Stderr, "")
				if r.Code != 0 || !strings.Contains(r.Stdout, "on host1\n") || !strings.Contains(r.Stdout, "on host2\n") || strings.TrimSpace(r.Stderr) != "" {
					failed++
					if failed > 3 {
						t.Fatal("and so on")
					}
					t.Errorf("reset after %d bytes: exit code %d\n%s%s", limit, r.Code, r.Stdout, r.Stderr)
				}
			}
			t.Logf("%d connections were reset, %d jobs failed", resets, failed)
			if resets < 3 {
				t.Error("too few to show anything")
			}
			c.ExpectNothingLeft(25 * time.Second) // a daemon without ranks waits 20 s for a launcher that it has lost
		})
	}
}
