package vm

import (
	"context"
	"flag"
	"regexp"
	"strconv"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab/vm"
	"gorun/contrib/must"
)

var (
	vmMoves    = flag.Int("moves", 1, "how often TestVMRDMA moves a guest")
	vmKills    = flag.Int("kills", 30, "how many queue pairs TestVMRDMA has hosts find broken while guests train")
	vmElements = flag.Int("elements", 1<<22, "to how many elements of 4 bytes TestVMRDMA compares operations")
)

var (
	overRDMA = regexp.MustCompile(`between hosts: sent (\d+) bytes \((\d+) over RDMA\)`)
	failures = regexp.MustCompile(`; queue pairs failed \d+ times`)
)

// TestVMRDMA trains on three guests over Soft-RoCE and the real libibverbs. Meanwhile one guest moves, and on all guests
// ports go down and devices are deleted and made again, as often as -moves and -kills say. No rank restarts, and the
// weights have the bits that an undisturbed training gives. Then every operation has the bits that it has over TCP.
func TestVMRDMA(t *testing.T) {
	if !*vmBinding {
		t.Skip("a part of make vm: three virtual machines with Soft-RoCE")
	}
	binary, root := vmProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 55*time.Minute)
	defer cancel()
	l := rdmaGuests(ctx, t, root)
	tr := train(ctx, t, l, binary, "--rdma", "on", "--rdma-options", "rest=20ms", "--metrics", rdmaMetrics,
		"--network-interfaces", "ens192")
	tr.goesOn(20)
	shortest := time.Hour
	for range *vmMoves {
		paused, err := l.Guests()[1].Move(ctx, 500*time.Millisecond)
		must.Do(t, err)
		tr.goesOn(10)
		shortest = min(shortest, paused)
	}
	began := time.Now()
	tr.breakPairs(ctx, *vmKills)
	carried, failed := tr.counted(ctx)
	t.Logf("%d queue pairs have failed after %.1f s", failed, time.Since(began).Seconds())
	tr.goesOn(10)
	for deadline := time.Now().Add(5 * time.Minute); ; { // RDMA carries more than before, when streams have rested
		tr.goesOn(1)
		if more, _ := tr.counted(ctx); more > carried+1<<20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("RDMA carries nothing after that:\n%s", tr.out)
		}
	}
	longest := tr.end(ctx)
	text := tr.out.String()
	counted := failures.FindString(text)
	if overRDMA.FindString(text) == "" || counted == "" {
		t.Fatalf("nothing went over RDMA, or no queue pair failed:\n%s", text)
	}
	if longest < shortest {
		t.Errorf("the longest step took %v, and vm2 was paused for %v or more", longest, shortest)
	}
	t.Logf("%d steps; %s%s; vm2 was paused %d times, for %.2f s or more; the longest step took %.2f s", tr.steps(),
		overRDMA.FindString(text), counted, *vmMoves, shortest.Seconds(), longest.Seconds())
	operationsInGuests(ctx, t, l, binary)
}

// rdmaGuests returns a lab of three guests with Soft-RoCE, until the test ends.
func rdmaGuests(ctx context.Context, t *testing.T, root string) *vm.Lab {
	t.Helper()
	l := guests(ctx, t, root, vm.Options{Guests: 3, Memory: 1024})
	for _, g := range l.Guests() {
		must.Do(t, g.SoftRoCE(ctx))
	}
	return l
}

// breakPairs has all guests end their connected queue pairs until hosts have found so many broken. In turn each takes the
// NIC down for a moment, and deletes the device and makes it again.
func (tr *training) breakPairs(ctx context.Context, pairs int) {
	tr.t.Helper()
	const stop = "/run/no-more-kills"
	guests := tr.lab.Guests()
	ended := make(chan error, len(guests))
	for _, g := range guests {
		go func() {
			_, err := g.Run(ctx, `
				round=0
				while [ ! -e `+stop+` ]; do
					for try in $(seq 200); do # until there are all, or some for a while
						n=$(rdma resource show qp type RC | grep -c 'state RTS')
						[ $n -ge 8 ] || [ $n -gt 0 -a $try -gt 10 ] && break
						sleep 0.1
					done
					case $((round++ % 4)) in
					0) rdma link delete rxe0 && rdma link add rxe0 type rxe netdev ens192 || exit ;;
					*) ip link set ens192 down && ip link set ens192 up || exit ;;
					esac
				done`)
			ended <- err
		}()
	}
	for failed := 0; failed < pairs; _, failed = tr.counted(ctx) {
		tr.goesOn(1)
	}
	for _, g := range guests {
		for { // a new connection may time out while a NIC is down
			_, err := g.Run(ctx, "touch "+stop)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				tr.t.Fatal(err)
			}
		}
	}
	for range guests {
		if err := <-ended; err != nil {
			tr.t.Fatalf("%v\n%s", err, tr.out)
		}
	}
}

const rdmaMetrics = "127.0.0.1:9464"

var rdmaCounters = regexp.MustCompile(`(?m)^gorun_host_rdma_(bytes|failures)_total\{.*\} (\S+)$`)

// counted returns how many bytes have gone over RDMA, and how many queue pairs hosts have found broken.
func (tr *training) counted(ctx context.Context) (bytes, failed int) {
	tr.t.Helper()
	text, err := tr.lab.Command(ctx, e2etest.Python, "-c",
		"import urllib.request; print(urllib.request.urlopen('http://"+rdmaMetrics+"/metrics').read().decode())").CombinedOutput()
	if err != nil {
		tr.t.Fatalf("%v\n%s", err, text)
	}
	for _, m := range rdmaCounters.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(m[2], 64)
		must.Do(tr.t, err)
		if m[1] == "bytes" {
			bytes += int(n)
		} else {
			failed += int(n)
		}
	}
	return bytes, failed
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
