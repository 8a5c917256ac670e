package stacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"gorun/worker/proc"
)

const (
	// NativeTime bounds how long tools may stop the processes of a host to read their stacks, the ends of those tools that
	// are given up included. toolTime is the part of it in which one tool may read one process.
	NativeTime = 20 * time.Second
	toolTime   = 6 * time.Second
	// maxSaid bounds what is read of a tool's complaints.
	maxSaid = 4 << 10
	// nativeFrames bounds the frames of a thread that a tool shows.
	nativeFrames = 64
)

// Traced is what a tool has shown of a process.
type Traced struct {
	Stack string   // in the form of Python's faulthandler, with line 0 where the source is not known; "" for none
	Tool  string   // that showed it, "" for none
	Notes []string // why there is no stack, and what the tool did to the process
}

// tool is a program that stops a process while it reads the stacks of its threads.
type tool struct {
	name  string
	args  func(pid string) []string
	parse func(text []byte) ([]thread, error)
}

// tools are tried in this order. py-spy also shows the functions of Python, eu-stack takes the shortest time.
var tools = []tool{
	{program, func(pid string) []string { return []string{"dump", "--json", "--native", "--pid", pid} }, parseDump},
	{"eu-stack", func(pid string) []string { return []string{"-m", "-n", strconv.Itoa(nativeFrames), "-p", pid} }, parseElfutils},
	{"gdb", func(pid string) []string {
		return []string{"-nx", "-batch", "-iex", "set auto-load off", "-iex", "set print frame-arguments none", "-iex", "set width 0",
			"-p", pid, "-ex", fmt.Sprintf("thread apply all -ascending backtrace %d", nativeFrames)}
	}, parseDebugger},
}

// Native returns the stacks of processes with the functions of C, by tools of this host that stop a process while they read it.
// It leaves none stopped that was not: a tool that takes too long is asked to end before it is killed, and a process that
// a tool has left behind in a stop is continued. A stack takes up to most bytes.
func Native(ctx context.Context, pids []int, most int) map[int]Traced {
	ctx, cancel := context.WithTimeout(ctx, NativeTime-endTime)
	defer cancel()
	return ofEach(pids, func(pid int) Traced { return trace(ctx, pid, most) })
}

// trace reads the stacks of a process by the first tool that can.
func trace(ctx context.Context, pid, most int) (t Traced) {
	process, err := os.FindProcess(pid) // it stays the same process, even if its number is used again
	if pid <= 0 || err != nil {
		return Traced{Notes: []string{"it has ended"}}
	}
	defer process.Release()
	if tracer := proc.Field(proc.ReadOf(pid, "status"), "TracerPid"); tracer != "" && tracer != "0" {
		return Traced{Notes: []string{"no native stack: process " + clean(tracer) + " traces it already"}}
	}
	why := "none of py-spy, eu-stack and gdb is there: install the package elfutils or gdb, or py-spy by pip"
	for _, tool := range tools {
		path := find(pid, tool.name)
		if path == "" {
			continue
		}
		threads, failed, note := tool.read(ctx, path, process)
		if note != "" {
			t.Notes = append(t.Notes, note)
		}
		if t.Stack = format(threads, pid, most); t.Stack != "" {
			t.Tool = tool.name
			return t
		}
		if why = failed; ctx.Err() != nil {
			break
		}
	}
	if stopOf(pid) == ended {
		return Traced{Notes: []string{"it has ended"}}
	}
	t.Notes = append(t.Notes, "no native stack: "+why)
	return t
}

// read has a tool read a process, with the reason in failed if it shows no stack. A note is for what it did to the process.
func (t tool) read(ctx context.Context, path string, process *os.Process) (threads []thread, failed, note string) {
	if ctx.Err() != nil {
		return nil, "there was no time left", ""
	}
	before := stopOf(process.Pid)
	out, said, err := runTool(ctx, path, t.args(strconv.Itoa(process.Pid)))
	threads, wrong := t.parse(out)
	shows := wrong == nil && len(threads) > 0
	if before == running && continued(process, shows && err == nil) {
		note = t.name + " left it stopped, and gorun continued it"
	}
	switch {
	case shows:
		return threads, "", note
	case errors.Is(err, context.DeadlineExceeded):
		failed = fmt.Sprintf("%s took too long", t.name)
	default:
		failed = t.name + ": " + complaint(process.Pid, said)
	}
	return nil, failed, note
}

// complaint puts in a line why a tool shows no stack of a process.
func complaint(pid int, said string) string {
	said = strings.TrimSpace(said)
	if lower := strings.ToLower(said); strings.Contains(lower, "not permitted") || strings.Contains(lower, "permission denied") {
		scope, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope") // only kernels with Yama have it
		return denied(strings.TrimSpace(string(scope)), same(pid))
	}
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "warning: ") {
			return clean(line)
		}
	}
	return "it shows no stack"
}

// denied explains why a process may not be traced. What Yama's setting means is in the kernel's documentation of it.
func denied(scope string, own bool) string {
	switch {
	case !own:
		return "not permitted: the process is of another user or in another container, which only root may trace"
	case scope == "3":
		return "not permitted: kernel.yama.ptrace_scope is 3, which forbids it until the host starts again"
	case scope == "1", scope == "2":
		return "not permitted: kernel.yama.ptrace_scope is " + scope + "; sysctl kernel.yama.ptrace_scope=0 permits it"
	}
	return "not permitted: the daemon lacks CAP_SYS_PTRACE (SYS_PTRACE in a container)"
}
