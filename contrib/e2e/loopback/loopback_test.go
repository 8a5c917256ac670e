// Package loopback runs jobs between two hosts on any machine, also in a container without namespaces, in which the tests of
// other families are skipped. The hosts are sshd's on 127.0.0.2 and 127.0.0.3, by contrib/demo/sshds.sh.
package loopback

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// hosts are two hosts: what is written to orders as "lose" kills host2.
type hosts struct {
	t      *testing.T
	config string
	orders *os.File
}

// start makes hosts. It never skips: where no job between two hosts can run, tests that pass would say nothing of gorun.
func start(t *testing.T) *hosts {
	t.Helper()
	t.Parallel()
	e2etest.DependsOn(t, "contrib/demo")
	script := `set -uo pipefail; PATH=$PATH:/usr/sbin; say() { echo "$*" >&2; }; . contrib/demo/sshds.sh
start_sshds && echo "$dir/config" || exit; exec >&2; while read -r order; do lose_host2; done`
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = e2etest.Root()
	stdin, orders, err := os.Pipe()
	must.Do(t, err)
	var said strings.Builder
	cmd.Stdin, cmd.Stderr = stdin, &said
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err = errors.Join(err, stdin.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		orders.Close()
		cmd.Wait()
	})
	config, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		orders.Close()
		cmd.Wait()
		t.Fatalf("no job between two hosts can run here: %s", said.String())
	}
	return &hosts{t, strings.TrimSpace(config), orders}
}

// gorun prepares gorun with two ranks on each host.
func (h *hosts) gorun(args ...string) *exec.Cmd {
	h.t.Helper()
	binary, err := e2etest.Binary()
	must.Do(h.t, err)
	cmd := exec.CommandContext(h.t.Context(), binary, append([]string{"--ssh-config", h.config, "-np", "4", "-H", "host1:2,host2:2"}, args...)...)
	cmd.Dir = e2etest.Root()
	return cmd
}

// ends runs gorun and compares its exit status, and its output with patterns.
func (h *hosts) ends(cmd *exec.Cmd, code int, patterns ...string) {
	h.t.Helper()
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != code {
		h.t.Fatalf("%v, not exit status %d\n%s", err, code, out)
	}
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).Match(out) {
			h.t.Errorf("no %q in\n%s", pattern, out)
		}
	}
}

// program compares objects of many sizes, and sums where there is NumPy.
const program = `
import gorun
from gorun import basics, objects
basics.init()
rank, size = basics.rank(), basics.size()
for n in (0, 1, 1000, 300000):
    assert objects.allgather_object(bytes([rank]) * n) == [bytes([r]) * n for r in range(size)], n
assert objects.broadcast_object([rank], root_rank=3) == [3]
try:
    import numpy
except ImportError:
    numpy = None
if numpy:
    import gorun.numpy as hvd
    for n in (1, 1000, 1 << 20):
        x = hvd.allreduce(numpy.arange(n, dtype=numpy.float64) * (rank + 1), op=hvd.Sum)
        assert (x == numpy.arange(n, dtype=numpy.float64) * 10).all(), n
print("right on", rank, flush=True)
`

// TestSums: four ranks on two hosts exchange objects and sums over ssh and TCP, in the clear and encrypted, by each algorithm.
func TestSums(t *testing.T) {
	h := start(t)
	file := filepath.Join(t.TempDir(), "sums.py")
	must.Do(t, os.WriteFile(file, []byte(program), 0o644))
	right := []string{`\[0\]<stdout>:right on 0\n`, `\[3\]<stdout>:right on 3\n`}
	h.ends(h.gorun("-v", "python3", file), 0, append(right, `gorun: host2: data goes over 127\.0\.0\.3\n`)...)
	h.ends(h.gorun("--encrypt", "python3", file), 0, right...)
	for _, algorithm := range []string{"ring", "rabenseifner", "recursive-doubling"} {
		h.ends(h.gorun("--algorithm", algorithm, "python3", file), 0, right...)
	}
}

// TestFailure: what a rank on the other host writes last, its exit status and its host are told.
func TestFailure(t *testing.T) {
	h := start(t)
	h.ends(h.gorun("sh", "-c", `[ $GORUN_RANK = 3 ] || exec sleep 100; echo "disk is full" >&2; exit 7`), 7,
		`(?m)^gorun: error: .*rank 3 .*host2`, `disk is full`)
}

// TestLosesHost: a training goes on without a host that is killed.
func TestLosesHost(t *testing.T) {
	h := start(t)
	cmd := h.gorun("--min-np", "2", "python3", "contrib/demo/line.py")
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = cmd.Stdout
		err = cmd.Start()
	}
	must.Do(t, err)
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "step 20 of") {
			h.orders.WriteString("lose\n")
		}
	}
	if err := cmd.Wait(); err != nil || !regexp.MustCompile(`trained to the end on 2 ranks: y = (2\.9|3\.0)\d x`).MatchString(said.String()) {
		t.Errorf("%v\n%s", err, said.String())
	}
}
