package why_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorun/launcher/why"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

const stack = `Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 415 in select
  File "/home/ann/train.py", line 12 in batches
  File "/home/ann/train.py", line 40 in <module>
`

// waits is a rank that waits in an allreduce for another one.
func waits(rank int, for_ string) why.Finding {
	return why.Finding{Rank: rank, Host: "host1", PID: 100 + rank, State: "waits for data (pid 100)", Activity: "waits for an operation",
		For: 7e6, Waits: true, Does: []string{`waits in allreduce "a" for ` + for_ + `, for 7s or longer`}}
}

func behind(f why.Finding) why.Finding {
	f.Rank, f.Host, f.PID, f.Behind = 2, "host2", 77, true
	f.Does = append(f.Does, `has not called allreduce "a", which others wait for, for 7s or longer`)
	return f
}

// TestTop: a user recognises the place, also where packages and Python's own library are on top of the stack.
func TestTop(t *testing.T) {
	const (
		mine      = "  File \"/home/ann/train.py\", line 40 in step\n"
		installed = "  File \"/venv/lib/python3.11/site-packages/torch/nn/conv.py\", line 456 in forward\n"
		python    = "  File \"/usr/lib/python3.11/threading.py\", line 331 in wait\n  File \"<frozen runpy>\", line 88 in run\n"
	)
	for frames, want := range map[string]string{
		mine:                      "step (train.py:40)",
		python + mine:             "step (train.py:40)",
		python + installed + mine: "forward (conv.py:456), called at step (train.py:40)",
		installed + python:        "forward (conv.py:456)",
		python:                    "",
	} {
		if got := (why.Finding{Stack: "Current thread 0x1 (most recent call first):\n" + frames}).Top(); got != want {
			t.Errorf("%q: %q, want %q", frames, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	both := []why.Finding{waits(0, "rank 2 on host2"), waits(1, "rank 2 on host2")}
	late := func(f why.Finding) []why.Finding { return append(both[:2:2], behind(f)) }
	for name, tt := range map[string]struct {
		all  []why.Finding
		want string
	}{
		"nothing yet":   {nil, "the job has no ranks yet"},
		"ended":         {[]why.Finding{{Rank: 0, State: "has ended", Ended: true}}, "all ranks have ended"},
		"computing":     {late(why.Finding{State: "is computing (pid 77)", Activity: "computes", Stack: stack}), "the job waits for rank 2 on host2, which is computing at batches (train.py:12)"},
		"no stack":      {late(why.Finding{State: "sleeps (pid 77)"}), "the job waits for rank 2 on host2, which sleeps"},
		"loader":        {late(why.Finding{State: "waits (pid 77)", Activity: "waits for data", For: 12e6, Stack: strings.Replace(stack, "line 40 in <module>", "line 119 in loading", 1)}), "the job waits for rank 2 on host2, which waits for its data loader for 12s"},
		"loads":         {late(why.Finding{State: "waits (pid 77)", Activity: "waits for data", For: 12e6, Stack: strings.Replace(stack, "/home/ann/train.py\", line 40 in <module>", "/x/gorun/counters.py\", line 119 in loading", 1)}), "the job waits for rank 2 on host2, which waits for its data loader for 12s at batches (train.py:12)"},
		"stopped":       {late(why.Finding{State: "is paused by a signal (pid 77)", Activity: "computes"}), "the job waits for rank 2 on host2, which is paused by a signal (kill -CONT 77 continues it)"},
		"file server":   {late(why.Finding{State: "waits for a file server (NFS) (pid 77)", Activity: "waits for data"}), "the job waits for rank 2 on host2, which waits for a file server (NFS)"},
		"debugger":      {late(why.Finding{State: "waits (pid 77)", Stack: strings.ReplaceAll(stack, "selectors.py", "pdb.py")}), "the job waits for rank 2 on host2, which is in a debugger at batches (train.py:12)"},
		"silent host":   {append(both[:2:2], why.Finding{Rank: 2, Host: "host2", Silent: true}), "the job waits for rank 2 on host2: the host does not answer"},
		"under way":     {both, "ranks 0-1 on host1 wait for data that is under way"},
		"between hosts": {append(both[:2:2], why.Finding{Rank: 2, Host: "host2", State: "is computing"}), "ranks 0-1 on host1 wait for data that is under way between hosts"},
		"one has ended": {late(why.Finding{State: "has ended", Ended: true}), "the job waits for rank 2 on host2, which has ended"},
		"no one waits":  {[]why.Finding{{Rank: 0, Host: "h", State: "is computing"}, {Rank: 1, Host: "h", State: "is computing"}}, "no rank waits for another: ranks 0-1 on h, each of which is computing"},
		"several":       {append(late(why.Finding{State: "sleeps"}), why.Finding{Rank: 3, Host: "host2", State: "is computing", Behind: true}), "the job waits for ranks 2-3 on host2: (3) is computing, (2) sleeps"},
		"another order": {[]why.Finding{cross(0, "a", "b"), cross(1, "b", "a")}, `ranks 0-1 on host1 wait for each other: they call different operations, or in different orders or numbers: rank 0 is in allreduce "a", rank 1 is in allreduce "b"`},
	} {
		got, evidence := why.Explain(tt.all)
		if got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tt.want)
		}
		if len(evidence) != len(tt.all) {
			t.Errorf("%s: evidence about %d of %d ranks", name, len(evidence), len(tt.all))
		}
	}
}

// TestSizes: of all signs of a rank the one counts that explains how long others wait for it.
func TestSizes(t *testing.T) {
	const second = 1_000_000
	for want, f := range map[string]why.Finding{
		"is computing at batches (train.py:12)": {State: "is computing", Stack: stack, Waited: 45e6, Step: 40_000,
			Signs: &why.Signs{Main: second / 2, CPU: second / 2, Ready: second / 2}}, // half a CPU makes a step last 0.08 s
		"gets too little CPU time: processes that are not visible here use its CPUs (50 % of the time it is ready and may not run)": {
			State: "is computing", Waited: 2e6, Step: 2e6, Signs: &why.Signs{Main: second / 2, CPU: second / 2, Ready: second / 2}},
		"waits for its data loader for 45s": {State: "waits", Activity: "waits for data", For: 45e6, Waited: 45e6, Step: 40_000,
			Signs: &why.Signs{Ready: second * 3 / 10}},
		"waits for another thread at batches (train.py:12)": {State: "waits for another thread", Stack: stack,
			Signs: &why.Signs{Switches: 300, Busiest: second}}, // as DDP does while a backward pass runs
		"computes all the time": {State: "computes all the time", Signs: &why.Signs{Main: second, Full: "/logs"}},
		"computes most of it": {State: "computes most of it",
			Signs: &why.Signs{Main: second * 95 / 100, Dead: []string{"process 7 (git), with status 128"}, Full: "/logs"}},
		"waits for its data loader for 8s; a process that it started has died: process 7 (git), with status 128": {
			State: "waits", Activity: "waits for data", For: 8e6, Signs: &why.Signs{Dead: []string{"process 7 (git), with status 128"}}},
		"waits for its data loader for 9s": {State: "is computing", Activity: "waits for data", For: 9e6, Signs: &why.Signs{Main: second}},
		"is in a debugger at batches (train.py:12)": {State: "waits", Stack: strings.ReplaceAll(stack, "selectors.py", "pdb.py"),
			Signs: &why.Signs{Full: "/out", Ready: second / 4}},
	} {
		f.Host, f.Behind = "h", true
		if f.Signs.Window = second; f.Signs.CPU == 0 {
			f.Signs.CPU = f.Signs.Main
		}
		if got, _ := why.Explain([]why.Finding{f}); got != "the job waits for rank 0 on h, which "+want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestNothingIsWrong: a job that goes on gets no other verdict, whatever its ranks are seen to do at the moment, unless all of
// them do the same for long.
func TestNothingIsWrong(t *testing.T) {
	const second = 1_000_000
	rank := func(n int) why.Finding {
		return why.Finding{Rank: n, Host: "h", State: "sleeps", Activity: "computes", Signs: &why.Signs{Window: second},
			Split: &wire.Split{Elapsed: 100e6, Steps: 50, Others: 20e6, Communication: 30e6, Operations: 9}}
	}
	const fine = "nothing is wrong: 50 steps of 2s: computing 50 %, data 0 %, communication 30 %, waiting for other ranks 20 %"
	busy := &why.Signs{Window: second, Ready: second / 2, CPU: second / 2, Main: second / 2, Rival: "make", RivalCPU: 2 * second}
	for name, tt := range map[string]struct {
		change func(f *why.Finding)
		want   string
	}{
		"quiet":          {func(*why.Finding) {}, fine},
		"a busy machine": {func(f *why.Finding) { f.Signs = busy }, fine},
		"late in its loader on a busy machine": {func(f *why.Finding) {
			f.Signs = &why.Signs{Window: second, Ready: second * 4 / 10, CPU: second * 55 / 100, Main: second * 55 / 100}
			if f.Rank == 1 {
				f.Late, f.Activity = &why.Lateness{Times: 90, Of: 100, Mean: 500_000}, "waits for data"
			}
		}, fine},
		"late on a busy machine": {func(f *why.Finding) {
			if f.Signs = busy; f.Rank == 1 {
				f.Late = &why.Lateness{Times: 90, Of: 100, Mean: 500_000}
			}
		}, fine},
		"late on a busy machine, with a CPU at the moment": {func(f *why.Finding) {
			if f.Signs = busy; f.Rank == 1 {
				f.Signs, f.Late = &why.Signs{Window: second, CPU: second, Main: second}, &why.Lateness{Times: 90, Of: 100, Mean: 500_000}
			}
		}, fine},
		"a machine that is much too busy, for long": {func(f *why.Finding) {
			f.Stays, f.Signs = true, &why.Signs{Window: second, Ready: second * int64(1-f.Rank)}
		}, fine},
		"a file, for a moment": {func(f *why.Finding) { f.Signs.Stuck = "/ckpt (ext4)" }, fine},
		"slow links that are idle": {func(f *why.Finding) {
			f.Links, f.Moving = []why.Link{{Peer: "o", LinkState: wire.LinkState{RTT: 9}}}, 0.9
		}, fine},
		"losses that slow nothing": {func(f *why.Finding) {
			f.Links = []why.Link{{Peer: "o", LinkState: wire.LinkState{Losing: true, Lost: 9}}}
		}, fine},
		"no steps for long, one of both": {func(f *why.Finding) { f.Stays = f.Rank == 1 }, fine},
		"in an operation": {func(f *why.Finding) {
			f.Activity, f.Stays, f.Does = "waits for an operation", true, []string{`waits in barrier "a" for rank 1 on h`}
		}, fine},
		"in an operation that no daemon knows": {func(f *why.Finding) {
			f.Activity, f.Stays, f.For, f.Stack = "waits for an operation", true, 600e6, stack
			f.Signs = &why.Signs{Window: second, Switches: 400, Main: second / 10, CPU: second / 10, Ready: second / 3} // it looks for one that sends
		},
			"no rank waits for another: ranks 0-1 on h, each of which waits for an operation for 10m0s at batches (train.py:12)"},
		"memory from disk": {func(f *why.Finding) {
			if f.Rank == 1 {
				f.Signs, f.Does = &why.Signs{Window: second, Faults: 900, Ready: second * 6 / 10, CPU: second / 10, Main: second / 10}, []string{`has not called barrier "a", which others wait for`}
			}
		}, "the job is slowed down by rank 1 on h, which waits for its memory to come from disk, 900 pages per second (its memory limit, or the machine, is too small)"},
		"memory from disk, which nobody waits for": {func(f *why.Finding) { f.Signs = &why.Signs{Window: second, Faults: int64(900 * f.Rank)} }, fine},
		"no steps for long":                        {func(f *why.Finding) { f.Stays = true }, "no rank waits for another: ranks 0-1 on h, each of which sleeps"},
	} {
		all := []why.Finding{rank(0), rank(1)}
		for i := range all {
			tt.change(&all[i])
		}
		if got, _ := why.Explain(all); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tt.want)
		}
	}
}

// cross is a rank in one operation that others wait for in another.
func cross(rank int, in, missing string) why.Finding {
	f := waits(rank, "others")
	f.Behind = true
	f.Does = []string{`has not called allreduce "` + missing + `", which others wait for`, `waits in allreduce "` + in + `" for rank 9 on host1`}
	return f
}

func TestNumbers(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "3": {3}, "0-2,5": {5, 1, 0, 2, 1}, "1,3": {1, 3}} {
		if got := topology.Ranges(numbers); got != want {
			t.Errorf("%v: got %q, want %q", numbers, got, want)
		}
	}
	var odd []int
	for n := 1; n < 200; n += 2 {
		odd = append(odd, n)
	}
	for want, ranks := range map[string][]int{"rank 1": odd[:1], "ranks 1,3": odd[:2], "ranks 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,… (100 in all)": odd} {
		if got := why.Ranks(ranks); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestMergeKernel: the kernel's stack stands in for one of Python, and above it where the kernel keeps the rank.
// TestMergeNative: functions of C stand below the kernel's and above the script's, which take the place of the
// interpreter's.
func TestMergeNative(t *testing.T) {
	frame := func(function string) string { return "  File \"/lib/libc.so.6\", line 0 in " + function + "\n" }
	native := "Thread 0x2 (most recent call first):\n" + frame("pause") + "\nThread 0x1 (most recent call first):\n" +
		frame("read") + frame("_PyEval_EvalFrameDefault") + frame("main")
	wait := []wire.ThreadState{{Wait: "pipe_read"}}
	spied := "Thread 0x1 (most recent call first):\n" + frame("read") + "  File \"/a/b.py\", line 3 in load\n"
	for _, tt := range []struct {
		finding why.Finding
		want    string
	}{
		{why.Finding{Native: native, Tool: "eu-stack", Threads: wait, Stack: stack},
			"pipe_read (kernel), read (libc.so.6), select (/usr/lib/python3.11/selectors.py:415), batches (/home/ann/train.py:12), <module> (/home/ann/train.py:40)"},
		{why.Finding{Native: native, Tool: "gdb", Kernel: []string{"pipe", "do"}, Threads: wait},
			"pipe (kernel), do (kernel), read (libc.so.6), _PyEval_EvalFrameDefault (libc.so.6), main (libc.so.6)"},
		{why.Finding{Native: spied, Tool: "py-spy", Stack: stack}, "read (libc.so.6), load (/a/b.py:3)"},
		{why.Finding{Notes: []string{"no native stack"}, Threads: wait}, "pipe_read (kernel)"},
	} {
		tt.finding.Rank = 1
		merged := why.Merge([]why.Finding{{Rank: 0, Native: tt.finding.Native, Tool: tt.finding.Tool, Stack: tt.finding.Stack, Kernel: tt.finding.Kernel, Threads: tt.finding.Threads}, tt.finding})
		if len(merged) != 1 || len(merged[0].Ranks) != 2 {
			t.Fatalf("%+v", merged)
		}
		var got []string
		for _, f := range merged[0].Frames {
			got = append(got, f.String())
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s, want %s", strings.Join(got, ", "), tt.want)
		}
	}
	notes := why.Notes([]why.Finding{{Rank: 0, Host: "a", Notes: []string{"x"}}, {Rank: 1, Host: "a", Notes: []string{"y", "x"}}, {Rank: 2, Host: "b", Notes: []string{"x"}}})
	if got := fmt.Sprint(notes); got != "[{[0 1] a x} {[1] a y} {[2] b x}]" {
		t.Error(got)
	}
}

func TestMergeKernel(t *testing.T) {
	kernel := []string{"nfs_wait", "do_syscall_64"}
	nfs := "waits for a file server (NFS) (pid 7)"
	merged := why.Merge([]why.Finding{
		{Rank: 0, Kernel: kernel, State: "sleeps (pid 7)"}, {Rank: 1, Kernel: kernel, State: nfs}, {Rank: 2, Kernel: kernel, Stack: stack, State: nfs},
		{Rank: 3, Kernel: kernel, Stack: stack, State: "sleeps (pid 7)"}, {Rank: 4}})
	var got []string
	for _, s := range merged {
		got = append(got, topology.Ranges(s.Ranks)+": "+s.Frames[0].String()+fmt.Sprint(len(s.Frames)))
	}
	want := []string{"0-1: nfs_wait (kernel)2", "2: nfs_wait (kernel)5", "3: select (/usr/lib/python3.11/selectors.py:415)3"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzMain: a rank can write anything for its stack.
func FuzzMain(f *testing.F) {
	f.Add(stack)
	f.Fuzz(func(t *testing.T, text string) {
		for _, frame := range why.Main(text) {
			if frame.Line < 0 || strings.Contains(frame.Function, "\n") {
				t.Errorf("%+v", frame)
			}
		}
	})
}
