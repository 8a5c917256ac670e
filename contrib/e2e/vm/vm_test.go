//go:build linux

package vm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab/vm"
)

var stepLine = regexp.MustCompile(`step (\d+) at ([0-9.]+)`)

var weightLine = regexp.MustCompile(`rank (\d+), process (\d+), weights ([0-9a-f]{64})`)

// TestVMotion moves a virtual machine to another hypervisor in the middle of a training on it and another
// one, over their real ssh and vmxnet3 NICs. No rank restarts, and the weights are those of a training that
// nothing happened to. It does not run beside other tests: emulated machines need all the time there is.
func TestVMotion(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all and make vm: TestStandstill freezes lab hosts, which boot in no time")
	}
	binary, root := vmProgram(t)
	program, err := os.ReadFile(filepath.Join(root, "testdata/vm/steps.py"))
	if err != nil {
		t.Fatal(err)
	}
	const steps = "100"
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	undisturbed, err := exec.CommandContext(ctx, binary, "-np", "2", e2etest.Python, "-c", string(program), steps, "0").CombinedOutput()
	if err != nil {
		t.Fatalf("a training on this machine alone: %v\n%s", err, undisturbed)
	}

	l := guests(ctx, t, root, vm.Options{Guests: 2})
	t.Run("topology", func(t *testing.T) { guestTopology(ctx, t, l, binary) })

	out := &e2etest.Record{}
	cmd := l.Command(ctx, binary, "-v", "-np", "2", "-H", "vm1:1,vm2:1", "--start-timeout", "4m", "--lease", "5m", "--wdir", "/", "python3", "-c", string(program), steps, "0.1")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for deadline := time.Now().Add(5 * time.Minute); len(stepLine.FindAllString(out.String(), -1)) < 20; time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-done:
			t.Fatalf("the training ended before its virtual machine moved: %v\n%s", err, out.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the training does not begin:\n%s", out.String())
		}
	}
	paused, err := l.Guests()[1].Move(ctx, 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}

	want := weightLine.FindSubmatch(undisturbed)
	found := weightLine.FindAllStringSubmatch(out.String(), -1)
	if want == nil || len(found) != 2 {
		t.Fatalf("%d ranks ended well:\n%s", len(found), out.String())
	}
	for _, f := range found {
		if f[3] != string(want[3]) {
			t.Errorf("rank %s has other weights than an undisturbed training", f[1])
		}
	}
	longest := longestStep(t, out.String())
	if longest < paused {
		t.Errorf("the longest step took %v, and vm2 was paused for %v: the training did not wait for it", longest, paused)
	}
	t.Logf("vm2 was paused for %.2f s; the longest step took %.2f s", paused.Seconds(), longest.Seconds())
	if n := strings.Count(out.String(), "epoch "); n != 1 {
		t.Errorf("%d worlds instead of one:\n%s", n, out.String())
	}
}

// vmProgram is gorun as it was built, and the directory of its sources.
func vmProgram(t *testing.T) (binary, root string) {
	t.Helper()
	if err := vm.Check(); err != nil {
		t.Skip(err)
	}
	binary, err := e2etest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	return binary, e2etest.Root()
}

// guests is a lab until the test ends.
func guests(ctx context.Context, t *testing.T, root string, options vm.Options) *vm.Lab {
	t.Helper()
	began := time.Now()
	options.Cache = filepath.Join(root, "build/vm")
	l, err := vm.New(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, g := range l.Guests() {
				t.Logf("%s: %s", g.Name(), g.LastOutput())
			}
		}
		l.Close()
	})
	t.Logf("%d guests after %.1f s", options.Guests, time.Since(began).Seconds())
	return l
}

// longestStep is the longest time between two steps.
func longestStep(t *testing.T, text string) time.Duration {
	longest, last := 0.0, 0.0
	for _, m := range stepLine.FindAllStringSubmatch(text, -1) {
		at, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		if last != 0 {
			longest = max(longest, at-last)
		}
		last = at
	}
	return time.Duration(longest * float64(time.Second))
}
