//go:build linux

package vm

import (
	"context"
	"flag"
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

var (
	vmMoves    = flag.Int("moves", 1, "how often TestVMRDMA moves a guest")
	vmElements = flag.Int("elements", 1<<22, "to how many elements of 4 bytes TestVMRDMA compares operations")
)

// A move takes a second or two, in which the training takes some of these steps of a tenth of a second.
const stepsOfMove = 50

var overRDMA = regexp.MustCompile(`between hosts: sent (\d+) bytes \((\d+) over RDMA\)`)

// TestVMRDMA trains on three guests over Soft-RoCE and the real libibverbs. In the middle the device of one guest is
// deleted and made again, and another guest moves, as often as -moves says. No rank restarts, and the weights are those of
// an undisturbed training. Then every operation has the bits that it has over TCP.
func TestVMRDMA(t *testing.T) {
	if !*vmBinding {
		t.Skip("a part of make vm: three virtual machines with Soft-RoCE")
	}
	binary, root := vmProgram(t)
	program, err := os.ReadFile(filepath.Join(root, "testdata/vm/steps.py"))
	if err != nil {
		t.Fatal(err)
	}
	steps := strconv.Itoa(100 + stepsOfMove**vmMoves)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	undisturbed, err := exec.CommandContext(ctx, binary, "-np", "3", e2etest.Python, "-c", string(program), steps, "0").CombinedOutput()
	if err != nil {
		t.Fatalf("a training on this machine alone: %v\n%s", err, undisturbed)
	}
	l := guests(ctx, t, root, vm.Options{Guests: 3, Memory: 1024})
	for _, g := range l.Guests() {
		if err := g.SoftRoCE(ctx); err != nil {
			t.Fatal(err)
		}
	}

	out := &e2etest.Record{}
	cmd := l.Command(ctx, binary, "-v", "--rdma", "on", "-np", "3", "-H", "vm1,vm2,vm3", "--start-timeout", "4m", "--lease", "5m", "--wdir", "/", "python3", "-c", string(program), steps, "0.1")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	taken := func() int { return len(stepLine.FindAllString(out.String(), -1)) }
	await := func(step int) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); taken() < step; time.Sleep(50 * time.Millisecond) {
			select {
			case err := <-done:
				t.Fatalf("the training ended before step %d: %v\n%s", step, err, out.String())
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("the training does not reach step %d:\n%s", step, out.String())
			}
		}
	}
	await(20)
	if _, err := l.Guests()[0].Run(ctx, "rdma link delete rxe0; sleep 1; rdma link add rxe0 type rxe netdev ens192"); err != nil {
		t.Fatal(err)
	}
	goesOn := func() { // fails if the training ends before ten more steps
		t.Helper()
		await(taken() + 10)
	}
	goesOn()
	shortest := time.Hour
	for range *vmMoves {
		stopped, err := l.Guests()[1].Move(ctx, 500*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		goesOn()
		shortest = min(shortest, stopped)
	}
	if err := <-done; err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}

	want := weightLine.FindSubmatch(undisturbed)
	found := weightLine.FindAllStringSubmatch(out.String(), -1)
	if want == nil || len(found) != 3 {
		t.Fatalf("%d ranks ended well:\n%s", len(found), out.String())
	}
	for _, f := range found {
		if f[3] != string(want[3]) {
			t.Errorf("rank %s has other weights than an undisturbed training", f[1])
		}
	}
	if overRDMA.FindString(out.String()) == "" || strings.Count(out.String(), "epoch ") != 1 {
		t.Errorf("nothing went over RDMA, or there was more than one world:\n%s", out.String())
	}
	longest := longestStep(t, out.String())
	if longest < shortest {
		t.Errorf("the longest step took %v, and vm2 was paused for %v or more", longest, shortest)
	}
	t.Logf("%s; vm2 was paused %d times, for %.2f s or more; the longest step took %.2f s", overRDMA.FindString(out.String()),
		*vmMoves, shortest.Seconds(), longest.Seconds())
	operationsInGuests(ctx, t, l, binary)
}

// operationsInGuests compares the bits of every operation over RDMA with those over TCP.
func operationsInGuests(ctx context.Context, t *testing.T, l *vm.Lab, binary string) {
	t.Helper()
	var results [2]string
	for i, rdma := range []string{"off", "on"} {
		began := time.Now()
		cmd := l.Command(ctx, binary, "-v", "--rdma", rdma, "-np", "3", "-H", "vm1,vm2,vm3", "--algorithm", "ring",
			"--start-timeout", "4m", "--lease", "5m", "--wdir", "/", "python3", "-c", e2etest.Operations(t), strconv.Itoa(*vmElements))
		out, err := cmd.CombinedOutput()
		// Where all guests share two busy CPUs, packets come late and queue pairs break.
		if err != nil || (rdma == "on") != overRDMA.Match(out) {
			t.Fatalf("--rdma %s: %v\n%s", rdma, err, out)
		}
		results[i] = e2etest.Results(t, string(out), 3)
		t.Logf("every operation with --rdma %s: %.1f s, %s", rdma, time.Since(began).Seconds(), overRDMA.Find(out))
	}
	if results[0] != results[1] {
		t.Errorf("over TCP the results are\n%s\nover RDMA\n%s", results[0], results[1])
	}
}
