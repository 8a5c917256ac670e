package vm

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab/vm"
	"gorun/contrib/must"
)

var vmFaults = flag.Int("faults", 10, "how many faults TestVMSteps has")

// TestVMSteps trains with torch on three guests, which get the script from the launcher, while ranks and all that gorun runs on a
// guest are killed; and one guest moves meanwhile. What the ranks have noted tells that no step was lost, as in TestNoStepLost.
func TestVMSteps(t *testing.T) {
	if !*vmBinding {
		t.Skip("a part of make vm: three virtual machines with torch")
	}
	e2etest.NeedTorch(t)
	binary, root := vmProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Duration(*vmFaults)*time.Minute)
	defer cancel()
	l := guests(ctx, t, root, vm.Options{Guests: 3, Memory: 1024, Packages: []string{"python3-torch"}})
	dir := t.TempDir()
	script := must.Read(t, filepath.Join(root, "testdata/elastic/exact.py"))
	must.Do(t, os.WriteFile(filepath.Join(dir, "exact.py"), script, 0o600))
	flags := []string{"exact.py", "--seed", "3", "--no-power", "--faults", strconv.Itoa(*vmFaults), "--log"}

	out := &e2etest.Record{}
	cmd := l.Command(ctx, binary, slices.Concat([]string{"--ship", "--min-np", "1", "-np", "3", "--spares", "2", "--on-failure", "shrink",
		"--blacklist-cooldown-range", "0.1", "0.2", "--start-timeout", "4m", "-H", "vm1:2,vm2:2,vm3:2", "python3"}, flags, []string{"/run/exact"})...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(8 * time.Minute); !out.Has("epoch 2: "); time.Sleep(50 * time.Millisecond) {
		if len(ended) > 0 || time.Now().After(deadline) {
			break // what the ranks have noted tells more
		}
	}
	paused, err := l.Guests()[1].Move(ctx, 500*time.Millisecond)
	must.Do(t, err)
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	log := t.TempDir()
	for _, g := range l.Guests() {
		lines, err := g.Run(ctx, "cat /run/exact/*.jsonl")
		must.Do(t, err)
		must.Do(t, os.WriteFile(filepath.Join(log, g.Name()+".jsonl"), []byte(lines), 0o600))
	}
	check := exec.CommandContext(ctx, e2etest.Python, slices.Concat(flags, []string{log, "--check"})...)
	check.Dir, check.Env = dir, append(check.Environ(), "PYTHONPATH="+filepath.Join(root, "contrib/python"))
	said, err := check.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, said, out)
	}
	t.Logf("%s\nvm2 was paused for %.2f s", said, paused.Seconds())
}
