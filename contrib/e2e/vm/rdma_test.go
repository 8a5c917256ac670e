//go:build linux

package vm

import (
	"context"
	"flag"
	"fmt"
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
	vmKills    = flag.Int("kills", 30, "how many queue pairs TestVMRDMA ends while guests train")
	vmElements = flag.Int("elements", 1<<22, "to how many elements of 4 bytes TestVMRDMA compares operations")
)

var (
	overRDMA = regexp.MustCompile(`between hosts: sent (\d+) bytes \((\d+) over RDMA\)`)
	failures = regexp.MustCompile(`; queue pairs failed (\d+) times`)
)

// TestVMRDMA trains on three guests over Soft-RoCE and the real libibverbs. Meanwhile one guest moves, and on all guests
// ports go down and devices are deleted and made again, as often as -moves and -kills say. No rank restarts, and the
// weights have the bits that an undisturbed training gives. Then every operation has the bits that it has over TCP.
func TestVMRDMA(t *testing.T) {
	if !*vmBinding {
		t.Skip("a part of make vm: three virtual machines with Soft-RoCE")
	}
	binary, root := vmProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 35*time.Minute)
	defer cancel()
	l := guests(ctx, t, root, vm.Options{Guests: 3, Memory: 1024})
	for _, g := range l.Guests() {
		if err := g.SoftRoCE(ctx); err != nil {
			t.Fatal(err)
		}
	}
	tr := train(ctx, t, l, binary, "--rdma", "on", "--rdma-options", "rest=20ms")
	tr.goesOn(20)
	shortest := time.Hour
	for range *vmMoves {
		paused, err := l.Guests()[1].Move(ctx, 500*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		tr.goesOn(10)
		shortest = min(shortest, paused)
	}
	killed := 0
	for left, began := len(l.Guests()), time.Now(); left > 0; left-- {
		n := tr.killPairs(ctx, l.Guests()[left-1], (*vmKills-killed+left-1)/left)
		killed += n
		tr.goesOn(10)
		t.Logf("%d queue pairs were ended, after %.1f s", killed, time.Since(began).Seconds())
	}
	longest := tr.end(ctx)
	text := tr.out.String()
	counted := failures.FindStringSubmatch(text)
	if overRDMA.FindString(text) == "" || counted == nil {
		t.Fatalf("nothing went over RDMA, or no queue pair failed:\n%s", text)
	}
	// Some pairs end because the stream over TCP beside them does so first, which is no failure of theirs.
	if failed, err := strconv.Atoi(counted[1]); err != nil || failed < killed/2 {
		t.Errorf("%d queue pairs were ended, and%s", killed, counted[0])
	}
	if longest < shortest {
		t.Errorf("the longest step took %v, and vm2 was paused for %v or more", longest, shortest)
	}
	t.Logf("%d steps; %s%s; vm2 was paused %d times, for %.2f s or more; the longest step took %.2f s", tr.steps(),
		overRDMA.FindString(text), counted[0], *vmMoves, shortest.Seconds(), longest.Seconds())
	operationsInGuests(ctx, t, l, binary)
}

// killPairs ends connected queue pairs of a guest until these are so many, and returns how many. In turn it takes the NIC
// down for a moment, and deletes the device and makes it again.
func (tr *training) killPairs(ctx context.Context, g *vm.Guest, pairs int) int {
	tr.t.Helper()
	out, err := g.Run(ctx, fmt.Sprintf(`
		killed=0 round=0
		while [ $killed -lt %d ]; do
			for try in $(seq 200); do # until there are all, or some for a while
				n=$(rdma resource show qp type RC | grep -c 'state RTS')
				[ $n -ge 8 ] || [ $n -gt 0 -a $try -gt 10 ] && break
				sleep 0.1
			done
			[ $n -gt 0 ] || { echo "no queue pairs come" >&2; exit 1; }
			case $((round++ %% 4)) in
			0) rdma link delete rxe0 && rdma link add rxe0 type rxe netdev ens192 || exit ;;
			*) ip link set ens192 down && ip link set ens192 up || exit ;;
			esac
			killed=$((killed + n))
		done
		echo $killed`, pairs))
	if err != nil {
		tr.t.Fatalf("%v\n%s", err, tr.out)
	}
	killed, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		tr.t.Fatalf("%v\n%s", err, tr.out)
	}
	return killed
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
