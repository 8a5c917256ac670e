package vm

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab/vm"
	"gorun/contrib/must"
)

var (
	stepLine   = regexp.MustCompile(`step (\d+) at ([0-9.]+)`)
	weightLine = regexp.MustCompile(`rank (\d+), process (\d+), weights ([0-9a-f]{64})`)
)

// training is a training on all guests of a lab, one rank on each, that goes on until end.
type training struct {
	t       *testing.T
	lab     *vm.Lab
	binary  string
	program string
	out     *e2etest.Record
	done    chan error
}

// enough is the file on vm1 that ends a training.
const enough = "/run/enough"

// train starts one.
func train(ctx context.Context, t *testing.T, l *vm.Lab, binary string, flags ...string) *training {
	t.Helper()
	program := must.Read(t, filepath.Join(e2etest.Root(), "testdata/vm/steps.py"))
	var names []string
	for _, g := range l.Guests() {
		names = append(names, g.Name())
	}
	tr := &training{t: t, lab: l, binary: binary, program: string(program), out: &e2etest.Record{}, done: make(chan error, 1)}
	cmd := l.Command(ctx, binary, slices.Concat([]string{"-v", "-np", strconv.Itoa(len(names)), "-H", strings.Join(names, ","),
		"--start-timeout", "4m", "--lease", "5m", "--wdir", "/"}, flags, []string{"python3", "-c", tr.program, "1000000", "0.02", enough})...)
	cmd.Stdout, cmd.Stderr = tr.out, tr.out
	must.Do(t, cmd.Start())
	go func() { tr.done <- cmd.Wait() }()
	return tr
}

func (tr *training) steps() int { return len(stepLine.FindAllString(tr.out.String(), -1)) }

// goesOn returns after so many more steps.
func (tr *training) goesOn(more int) {
	tr.t.Helper()
	until := tr.steps() + more
	for deadline := time.Now().Add(5 * time.Minute); tr.steps() < until; time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-tr.done:
			tr.t.Fatalf("the training ended before step %d: %v\n%s", until, err, tr.out)
		default:
		}
		if time.Now().After(deadline) {
			tr.t.Fatalf("the training does not reach step %d:\n%s", until, tr.out)
		}
	}
}

// end ends the training, and checks that no rank started again, and that the weights are what as many undisturbed
// steps give. It returns the longest time between two steps.
func (tr *training) end(ctx context.Context) time.Duration {
	tr.t.Helper()
	if _, err := tr.lab.Guests()[0].Run(ctx, "touch "+enough); err != nil {
		tr.t.Fatal(err)
	}
	if err := <-tr.done; err != nil {
		tr.t.Fatalf("%v\n%s", err, tr.out)
	}
	ranks := len(tr.lab.Guests())
	undisturbed, err := exec.CommandContext(ctx, tr.binary, "-np", strconv.Itoa(ranks), e2etest.Python, "-c", tr.program,
		strconv.Itoa(tr.steps()), "0").CombinedOutput()
	if err != nil {
		tr.t.Fatalf("a training on this machine alone: %v\n%s", err, undisturbed)
	}
	want := weightLine.FindSubmatch(undisturbed)
	found := weightLine.FindAllStringSubmatch(tr.out.String(), -1)
	if want == nil || len(found) != ranks {
		tr.t.Fatalf("%d ranks ended well:\n%s", len(found), tr.out)
	}
	for _, f := range found {
		if f[3] != string(want[3]) {
			tr.t.Errorf("rank %s has other weights than an undisturbed training", f[1])
		}
	}
	if n := strings.Count(tr.out.String(), "epoch "); n != 1 {
		tr.t.Errorf("%d worlds instead of one:\n%s", n, tr.out)
	}
	return longestStep(tr.t, tr.out.String())
}
