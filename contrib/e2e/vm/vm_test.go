package vm

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab/vm"
	"gorun/contrib/must"
)

// TestVMotion moves a virtual machine to another hypervisor in the middle of a training on it and another
// one, over their real ssh and vmxnet3 NICs. No rank restarts, and the weights are those of a training that
// nothing happened to. It does not run beside other tests: emulated machines need all the time there is.
func TestVMotion(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all and make vm: TestPaths of contrib/e2e/faults freezes lab hosts, which boot in no time")
	}
	binary, root := vmProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l := guests(ctx, t, root, vm.Options{Guests: 2})
	t.Run("topology", func(t *testing.T) { guestTopology(ctx, t, l, binary) })

	tr := train(ctx, t, l, binary)
	tr.goesOn(20)
	paused, err := l.Guests()[1].Move(ctx, 500*time.Millisecond)
	must.Do(t, err)
	tr.goesOn(20)
	t.Run("clock", func(t *testing.T) { wrongClock(ctx, t, l, tr) })
	longest := tr.end(ctx)
	if longest < paused {
		t.Errorf("the longest step took %v, and vm2 was paused for %v: the training did not wait for it", longest, paused)
	}
	t.Logf("vm2 was paused for %.2f s; the longest step took %.2f s", paused.Seconds(), longest.Seconds())
}

// aheadLine has room for how long an emulated guest takes to set its clock.
var aheadLine = regexp.MustCompile("the clock of vm2 is (1h5[0-9]|2h[0-9])m[0-9]+s ahead of this machine's")

// wrongClock sets the clock of the second guest two hours ahead. The training goes on, and gorun why names the guest.
func wrongClock(ctx context.Context, t *testing.T, l *vm.Lab, tr *training) {
	ahead := fmt.Sprintf("python3 -c 'import time; time.clock_settime(time.CLOCK_REALTIME, %d)'", time.Now().Add(2*time.Hour).Unix())
	if out, err := l.Guests()[1].Run(ctx, ahead); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tr.goesOn(20)
	said, err := l.Command(ctx, tr.binary, "why").CombinedOutput()
	if err != nil || !aheadLine.Match(said) {
		t.Errorf("%v\n%s", err, said)
	}
}

// vmProgram is gorun as it was built, and the directory of its sources.
func vmProgram(t *testing.T) (binary, root string) {
	t.Helper()
	if err := vm.Check(); err != nil && *vmBinding { // make vm asks for it
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
	binary, err := e2etest.Binary()
	must.Do(t, err)
	return binary, e2etest.Root()
}

// guests is a lab until the test ends.
func guests(ctx context.Context, t *testing.T, root string, options vm.Options) *vm.Lab {
	t.Helper()
	began := time.Now()
	options.Cache = filepath.Join(root, "build/vm")
	l, err := vm.New(ctx, options)
	must.Do(t, err)
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
		must.Do(t, err)
		if last != 0 {
			longest = max(longest, at-last)
		}
		last = at
	}
	return time.Duration(longest * float64(time.Second))
}
