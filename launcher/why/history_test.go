package why_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// rounds are the operations of two hosts that have called names in order, n times. Each takes 10 ms, and host2 comes
// late by so many microseconds.
func rounds(n int, late int64, names ...string) (ops []why.Op) {
	for host, name := range []string{"host1", "host2"} {
		number, at := uint64(0), int64(1e15)
		for range n {
			for _, op := range names {
				number++
				at += 10_000
				o := why.Op{Host: name, FlightOp: wire.FlightOp{Number: number, Name: op, Kind: "allreduce", Epoch: 1, FirstRank: host, LastRank: host, First: at, Last: at, Others: at + late, Began: at + late, Ended: at + late + 1000, Outcome: "done"}}
				if host == 1 {
					o.First, o.Last, o.Others = at+late, at+late, at
				}
				ops = append(ops, o)
			}
		}
	}
	return ops
}

// open is an operation that one of two hosts has called.
func open(host int, name string) why.Op {
	names := []string{"host1", "host2"}
	return why.Op{Host: names[host], FlightOp: wire.FlightOp{Number: 1000, Name: name, Kind: "allreduce", Epoch: 1, First: 2e15, Last: 2e15, FirstRank: host, LastRank: host, Outcome: "open", Missing: []wire.Missing{{Host: names[1-host], Ranks: []int{1 - host}}}}}
}

// meets are two ranks that wait for each other.
func meets() []why.Finding {
	return []why.Finding{{Rank: 0, Host: "host1", State: "waits", Behind: true, Waits: true}, {Rank: 1, Host: "host2", State: "waits", Behind: true, Waits: true}}
}

func TestDiverged(t *testing.T) {
	for name, tt := range map[string]struct {
		ops  []why.Op
		want string
	}{
		"left a call out": {append(rounds(3, 0, "a", "b", "c"), open(0, "a"), open(1, "b")),
			`rank 1 on host2 called allreduce "b" before allreduce "a", which came first until now: it left that call out or changed the order`},
		"left the last call of a round out": {append(rounds(3, 0, "a", "b", "c")[:17], open(0, "c"), open(1, "a")),
			`rank 1 on host2 called allreduce "a" before allreduce "c", which came first until now: it left that call out or changed the order`},
		"fewer batches": {append(rounds(1, 0, strings.Fields("a b end a b a b a b a b")...), open(0, "a"), open(1, "end")),
			`rank 1 on host2 went on to allreduce "end" after 5 rounds of allreduce "a", which others call once more: it has fewer batches than the others, or left one out`},
		"new to both": {append(rounds(5, 0, "a"), open(0, "x"), open(1, "y")),
			"ranks 0 on host1"},
	} {
		all := meets()
		// The last operation of the round that is cut is another host's, too.
		if name == "left the last call of a round out" {
			tt.ops = append(rounds(3, 0, "a", "b", "c")[:8], append(rounds(3, 0, "a", "b", "c")[9:17], open(0, "c"), open(1, "a"))...)
		}
		why.Learn(all, tt.ops)
		got, _ := why.Explain(all)
		if name == "new to both" {
			if all[0].Diverged != "" || all[1].Diverged != "" || !strings.Contains(got, "wait for each other") {
				t.Errorf("%s: %s (%+v)", name, got, all)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tt.want)
		}
	}
}

// TestPeriods: operations have periods of their own. Each row has what was done, what rank 0 on host1 and rank 1 on host2 are
// in then, who departs from the order until now, and how.
func TestPeriods(t *testing.T) {
	const skips, fewer, more, both = "left that call out", "has fewer batches", "has more batches", "wait for each other"
	for _, tt := range []struct{ done, in0, in1, who, how string }{
		{"g g g end g g g end g g", "end", "g", "rank 0 on host1", fewer},
		{"g g g end g g g end g g", "g", "end", "rank 1 on host2", fewer},
		{"g g g end g g g end g g g", "end", "g", "rank 1 on host2", more},
		{"a b a b a b end a b a b a b end a b", "end", "a", "rank 0 on host1", fewer},
		{"g v v done g v v done g v", "done", "v", "rank 0 on host1", fewer},
		{"g v loss g v g v loss g v g", "loss", "v", "rank 0 on host1", skips},
		{"g g loss g g loss g", "loss", "g", "rank 0 on host1", "or left one out"},
		{"g x.noname.0 g x.noname.1 g x.noname.2", "x.noname.3", "g", "rank 0 on host1", skips},
		{"g w v g w v g", "v", "w", "rank 0 on host1", skips},
		{"g v g w g", "v", "w", "rank 0 on host1 and rank 1 on host2", both}, // either came next, alike
		{"g g g", "v", "w", "rank 0 on host1 and rank 1 on host2", both},
		{"g g g", "end", "g", "rank 0 on host1 and rank 1 on host2", both}, // which may have one batch more, or less
	} {
		all := meets()
		why.Learn(all, append(rounds(1, 0, strings.Fields(tt.done)...), open(0, tt.in0), open(1, tt.in1)))
		if got, _ := why.Explain(all); !strings.HasPrefix(got, tt.who+" ") || !strings.Contains(got, tt.how) {
			t.Errorf("after %s, in %s and %s: %s; want %s, which %s", tt.done, tt.in0, tt.in1, got, tt.who, tt.how)
		}
	}
}

// TestPatience: a wait is long if it takes longer than a step, and than what took long before.
func TestPatience(t *testing.T) {
	slow := rounds(20, 0, "a")
	slow[0].Ended += 3e6 // the first use, which waits for hosts that start
	saves := append(rounds(20, 0, "a"), rounds(20, 0, "a")...)
	saves[7].Ended += 2e6
	steps := rounds(20, 0, "a")
	for i := range steps {
		steps[i].First, steps[i].Ended = int64(i%20)*4e6, int64(i%20)*4e6+1000
	}
	for name, tt := range map[string]struct {
		ops  []why.Op
		want time.Duration
	}{"none": {nil, 1500 * time.Millisecond}, "short steps": {slow, 1500 * time.Millisecond}, "saves for 2 s": {saves, 6003 * time.Millisecond},
		"steps of 4 s": {steps, 4 * time.Second}} {
		if got := why.Patience(tt.ops); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestSeldomLate: a rank that saves a checkpoint now and then is not late again and again, neither is one that validates after
// each epoch, nor one that is late in turn with another.
func TestSeldomLate(t *testing.T) {
	for name, late := range map[string]func(n int, o *why.Op) (host2, by int64){
		"saves":     func(n int, o *why.Op) (int64, int64) { return 1, map[bool]int64{true: 300_000}[n%20 == 10] },
		"validates": func(n int, o *why.Op) (int64, int64) { return 1, map[bool]int64{true: 300_000}[o.Name == "end"] },
		"in turn":   func(n int, o *why.Op) (int64, int64) { return int64(n % 2), 8000 },
		"shares":    func(n int, o *why.Op) (int64, int64) { return 1, 1500 },
	} {
		ops := rounds(12, 0, "a", "a", "a", "a", "a", "end")
		for i := range ops {
			o, n := &ops[i], i%(len(ops)/2)
			host, by := late(n, o)
			o.Began, o.Ended = o.Began+by, o.Ended+by
			if (o.Host == "host2") == (host == 1) {
				o.First, o.Last = o.First+by, o.Last+by
			} else {
				o.Others += by
			}
		}
		all := meets()
		for i := range all {
			all[i].Behind, all[i].Waits = false, false
		}
		if why.Learn(all, ops); all[0].Late != nil || all[1].Late != nil {
			t.Errorf("%s: %+v and %+v", name, all[0].Late, all[1].Late)
		}
	}
}

// TestMinority: of four ranks the one that does something else is named, also where the calls are new.
func TestMinority(t *testing.T) {
	all := []why.Finding{}
	for rank := range 4 {
		all = append(all, why.Finding{Rank: rank, Host: "h", State: "waits", Behind: true, Waits: true})
	}
	op := func(name string, missing ...int) why.Op {
		return why.Op{Host: "h", FlightOp: wire.FlightOp{Name: name, Kind: "barrier", Epoch: 1, First: 1, Outcome: "open", Missing: []wire.Missing{{Host: "h", Ranks: missing}}}}
	}
	why.Learn(all, []why.Op{op("x", 2), op("y", 0, 1, 3)})
	if got, _ := why.Explain(all); got != `rank 2 on h calls barrier "y" where most others call barrier "x"` {
		t.Error(got)
	}
	idle := slices.Clone(all)
	idle[3].Waits = false
	why.Learn(idle, []why.Op{op("x", 2, 3), op("y", 0, 1, 3)})
	if got, _ := why.Explain(idle); got != `rank 2 on h calls barrier "y" where most others call barrier "x"` {
		t.Error(got)
	}
	done := op("grad")
	done.Outcome, done.Missing = "done", nil
	why.Learn(all, []why.Op{done, done, op("grad", 0, 1, 3), op("end", 2)})
	if got, _ := why.Explain(all); got != `rank 2 on h calls barrier "grad" once more, when others went on to barrier "end": it has more batches than the others, or left that call out` {
		t.Error(got)
	}
}

// TestProcessSets: rank 2 on host3 is paused before an operation of the process set {1,2}, which rank 1 waits in. Rank 0 is on to the
// operation of all, which it alone may call then: that rank 1 has not called it is no departure from the order, whatever
// host1 knows of the set, and whichever operation host2 hears of first.
func TestProcessSets(t *testing.T) {
	all := []string{"host1", "host2", "host3"}
	var ops []why.Op
	add := func(o why.Op, name string, group uint32, number, at int64) {
		o.Name, o.Kind, o.Epoch, o.Group, o.Number, o.First, o.Last, o.Began, o.Ended = name, "allreduce", 1, group, uint64(number), at, at, at, at+1
		ops = append(ops, o)
	}
	for rank, host := range all {
		for step := range int64(20) {
			o := why.Op{Host: host, FlightOp: wire.FlightOp{Outcome: "done", Ranks: []int{rank}, Came: []int64{0}}}
			add(o, "gradients", 0, 2*step, 1000*step+900)
			if rank > 0 {
				add(o, "model", 1, 2*step+1, 1000*step+500)
			}
		}
	}
	missing := func(ranks ...int) (missing []wire.Missing) {
		for _, rank := range ranks {
			missing = append(missing, wire.Missing{Host: all[rank], Ranks: []int{rank}})
		}
		return missing
	}
	add(why.Op{Host: "host1", FlightOp: wire.FlightOp{Outcome: "open", Missing: missing(1, 2), Ranks: []int{0}, Came: []int64{0}}}, "gradients", 0, 50, 90_000)
	add(why.Op{Host: "host2", FlightOp: wire.FlightOp{Outcome: "open", Missing: missing(1, 2)}}, "gradients", 0, 50, 0)
	add(why.Op{Host: "host2", FlightOp: wire.FlightOp{Outcome: "open", Missing: missing(2), Ranks: []int{1}, Came: []int64{0}}}, "model", 1, 51, 90_000)
	found := []why.Finding{{Rank: 0, Host: "host1", State: "waits", Waits: true}, {Rank: 1, Host: "host2", State: "waits", Waits: true, Behind: true},
		{Rank: 2, Host: "host3", PID: 9, State: "is paused by a signal", Behind: true}}
	why.Learn(found, ops)
	if got, _ := why.Explain(found); got != "the job waits for rank 2 on host3, which is paused by a signal (kill -CONT 9 continues it)" {
		t.Error(got)
	}
}

func TestLate(t *testing.T) {
	for late, want := range map[int64]*why.Lateness{0: nil, 100: nil, 8000: {Times: 20, Of: 20, Mean: 8000}} {
		all := meets()
		for i := range all {
			all[i].Behind, all[i].Waits = false, false
		}
		why.Learn(all, rounds(20, late, "a"))
		if !reflect.DeepEqual(all[1].Late, want) || all[0].Late != nil {
			t.Errorf("late by %d µs: %+v and %+v", late, all[0].Late, all[1].Late)
		}
		got, _ := why.Explain(all)
		if want != nil && !strings.HasPrefix(got, "the job waits again and again for rank 1 on host2, the last one in 20 of 20 operations, by 8ms on average, which waits") {
			t.Error(got)
		}
	}
}

func TestRecording(t *testing.T) {
	r := &why.Recording{Head: why.Head{Reason: "a stall", Time: 1e15, Hosts: []string{"host1", "host2"}, Ranks: 2},
		Found: meets(), Ops: append(rounds(3, 50, "a"), open(0, "b")), Links: []why.LinkEvent{{Host: "host1", Peer: "host2", LinkEvent: wire.LinkEvent{Time: 1e15, What: "resumed", Resent: 7}}},
		Sums: []why.Sum{{Host: "host1", FlightSum: wire.FlightSum{Name: "loss", Bytes: 4, Ranks: []int{0, 1}, Times: []uint64{9, 9}}},
			{Host: "host1", FlightSum: wire.FlightSum{Name: "norm", Bytes: 8, Ranks: []int{0, 1}, Times: []uint64{9, 8}}}}}
	var b bytes.Buffer
	must.Do(t, r.Write(&b))
	got, err := why.Read(strings.NewReader(b.String()))
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%v: read\n%+v\nwant\n%+v", err, got, r)
	}
	_, evidence := got.Explain()
	text := strings.Join(evidence, "\n")
	for _, want := range []string{"because of a stall", "host1 recorded 4 operations", `allreduce "b": called at`, "waits for rank 1 on host2",
		"of host1 to host2 resumed, segments sent again: 7", `host1 added up allreduce "loss" of 4 bytes in shared memory, 9 times`,
		`"norm" of 8 bytes in shared memory: rank 0 came to it 9 times, rank 1 8 times`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	r.Head.Error = "rank 1 on host2 exited with status 1"
	r.Found[1].Failed = "rank 1 on host2 exited with status 1: KeyError"
	if verdict, _ := r.Explain(); verdict != "rank 1 on host2 exited with status 1: KeyError" {
		t.Error(verdict)
	}
	for _, bad := range []string{"", "{}", `{"recording":{"version":9}}`, `{"recording":`, "text"} {
		if _, err := why.Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is a recording", bad)
		}
	}
}

// FuzzRead: a file may hold anything.
func FuzzRead(f *testing.F) {
	f.Add(`{"recording":{"version":1,"hosts":["h"]}}` + "\n" + `{"operation":{"host":"h","name":"a","outcome":"open","missing":[{"host":"h","ranks":[1]}]}}` + "\n" + `{"rank":{"rank":1,"host":"h","behind":true,"waits":true}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := why.Read(strings.NewReader(text)); err == nil {
			if verdict, _ := r.Explain(); verdict == "" {
				t.Error("nothing is said")
			}
		}
	})
}

func TestHindrance(t *testing.T) {
	const second = 1_000_000
	locks := "Thread 0x1 (most recent call first):\n  File \"/a/b.py\", line 3 in other\n\nCurrent thread 0x2 (most recent call first):\n  File \"/a/b.py\", line 9 in main\n"
	for want, f := range map[string]why.Finding{
		"waits for the file /data/x (nfs4)":                                                                       {State: "waits", Signs: &why.Signs{Stuck: "/data/x (nfs4)"}},
		"waits for its memory to come from disk, 900 pages per second (64 MiB are in swap)":                       {State: "waits for a disk", Signs: &why.Signs{Faults: 900, Swapped: 64 << 20}},
		"goes on without a process that it started and that died: process 9 (python3), killed by signal 9":        {State: "waits", Signs: &why.Signs{Dead: []string{"process 9 (python3), killed by signal 9"}}},
		"waits for Python's interpreter lock, which another of its threads holds, at other (b.py:3)":              {State: "waits for another thread", Stack: locks, Signs: &why.Signs{Switches: 200}},
		"is in a deadlock: its main thread waits for a lock at main (b.py:9), another thread at other (b.py:3)":   {State: "waits for another thread", Stack: locks, Signs: &why.Signs{}},
		"writes to a file system that is full, /out":                                                              {State: "sleeps", Signs: &why.Signs{Full: "/out"}},
		"is held back by its control group, which allows it 0.5 CPUs (50 % of the time it may not run)":           {State: "is computing", Signs: &why.Signs{Throttled: second / 2, Quota: 0.5}},
		"gets too little CPU time: the hypervisor gives 40 % of it to other machines":                             {State: "is computing", Signs: &why.Signs{Stolen: second * 4 / 10, CPU: second / 2, Main: second / 2}},
		"gets too little CPU time: make (process 8) uses 0.9 CPUs (60 % of the time it is ready and may not run)": {State: "is computing", Signs: &why.Signs{Ready: second * 6 / 10, Rival: "make (process 8)", RivalCPU: second * 9 / 10}},
		"sleeps":       {State: "sleeps", Signs: &why.Signs{Stolen: second * 4 / 10}},
		"is computing": {State: "is computing", Signs: &why.Signs{CPU: second, Main: second}},
	} {
		f.Signs.Window = second
		f.Host, f.Behind = "h", true
		if got, _ := why.Explain([]why.Finding{f}); got != "the job waits for rank 0 on h, which "+want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestNetwork(t *testing.T) {
	all := meets()
	for i := range all {
		all[i].Behind = false
	}
	link := func(host int, l why.Link) {
		l.Window, l.Peer = 500_000, fmt.Sprint("host", 2-host)
		all[host].Links = []why.Link{l}
	}
	const begin = "rank 0 on host1 and rank 1 on host2 wait for data that is under way between hosts: "
	link(0, why.Link{LinkState: wire.LinkState{Sent: 600_000, Waits: 5, RTT: 300}})
	link(1, why.Link{LinkState: wire.LinkState{Sent: 900_000, Waits: 5, RTT: 300}})
	if got, _ := why.Explain(all); got != begin+"the slowest link is from host1 to host2: 1.2 MB/s: look at the speed of both NICs and at what else uses them" {
		t.Error(got)
	}
	link(0, why.Link{LinkState: wire.LinkState{Sent: 600_000_000, Waits: 5, RTT: 300}})
	link(1, why.Link{LinkState: wire.LinkState{Sent: 900_000_000, Waits: 5, RTT: 300}})
	if got, _ := why.Explain(all); !strings.Contains(got, "from host1 to host2: 1200 MB/s: ") {
		t.Error(got)
	}
	link(1, why.Link{LinkState: wire.LinkState{Sent: 200_000, Waits: 5, RTT: 80_000}})
	if got, _ := why.Explain(all); got != begin+"the slowest link is from host2 to host1: 0.4 MB/s, round trip 80ms: look at the speed of both NICs and at what else uses them" {
		t.Error(got)
	}
	const loses = "the path from host2 to host1 loses packets: it sent 80 again within 12s, while 0.9 MB arrived: " +
		"look for what limits its rate or drops packets (tc -s qdisc), then for a bad cable, port or NIC"
	link(1, why.Link{LinkState: wire.LinkState{Lost: 80, LostMS: 12004, LostOf: 900_000, Waits: 5}})
	if got, _ := why.Explain(all); strings.Contains(got, "loses") {
		t.Error("one burst: " + got)
	}
	link(1, why.Link{LinkState: wire.LinkState{Lost: 80, LostMS: 12004, LostOf: 900_000, Losing: true, Waits: 5}})
	if got, _ := why.Explain(all); got != begin+loses {
		t.Error(got)
	}
	link(0, why.Link{LinkState: wire.LinkState{Down: true}})
	if got, _ := why.Explain(all); got != begin+"the link from host1 to host2 has no connection" {
		t.Error(got)
	}
	all[1].Ahead = -3600e6
	if got, _ := why.Explain(all); !strings.HasSuffix(got, "; the clock of host2 is 1h0m0s behind this machine's") {
		t.Error(got)
	}
}
