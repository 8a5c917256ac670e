package stacks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/must"
)

// hung is a program in C that waits in wait_for_ever, and its other threads in other.
const hung = `
#include <pthread.h>
#include <unistd.h>
static void *other(void *p) { for (;;) pause(); }
__attribute__((noinline)) int wait_for_ever(void) { for (;;) pause(); return 1; }
int main(void) {
	pthread_t t;
	pthread_create(&t, 0, other, 0);
	write(1, "", 1);
	return wait_for_ever() + 1;
}`

// killed is a tool that is killed when it has begun to stop the first thread of a process.
const killed = `
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main(int n, char **a) {
	if (ptrace(PTRACE_ATTACH, atoi(a[n - 1]), 0, 0) == 0) kill(getpid(), SIGKILL);
	return 1;
}`

// compile makes a program of one file in C.
func compile(t *testing.T, source string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "program")
	must.Do(t, os.WriteFile(file+".c", []byte(source), 0o644))
	if out, err := exec.Command("gcc", "-O1", "-g", "-o", file, file+".c", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// hang starts the program that waits, with one other thread, and finds no tool by its PATH.
func hang(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(compile(t, hung))
	cmd.Env = []string{}
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// only has this process find no tool but a script that is called like one, or none.
func only(t *testing.T, name, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if name != "" {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755))
	}
	t.Setenv("PATH", dir)
	return dir
}

// toolOf returns the path of a tool that tests need.
func toolOf(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v: .ci/run installs it", err)
	}
	return path
}

// TestNative: the real tools show what a program in C waits in, and leave it as it was.
func TestNative(t *testing.T) {
	for _, name := range []string{"eu-stack", "gdb"} {
		t.Run(name, func(t *testing.T) {
			path := toolOf(t, name)
			pid := hang(t)
			only(t, name, "exec "+path+` "$@"`)
			for _, want := range []stop{running, stopped} {
				got := Native(t.Context(), []int{pid}, maxStack)[pid]
				lines := strings.Split(got.Stack, "\n")
				in := func(function string) bool {
					return slices.ContainsFunc(lines, func(line string) bool { return strings.HasSuffix(line, " in "+function) })
				}
				if got.Tool != name || len(got.Notes) > 0 || !in("wait_for_ever") || !in("other") || strings.Count(got.Stack, "Thread ") != 2 {
					t.Errorf("%+v", got)
				}
				if begins := strings.LastIndex(got.Stack, "Thread "); begins < 0 || !strings.Contains(got.Stack[begins:], " in main\n") {
					t.Errorf("the main thread is not the last\n%s", got.Stack)
				}
				if now := stopOf(pid); now != want {
					t.Errorf("it is %d, want %d", now, want)
				}
				syscall.Kill(pid, syscall.SIGSTOP)
				must.Soon(t, "it stops", func() bool { return stopOf(pid) == stopped })
			}
		})
	}
}

// TestNativeGoesOn: whatever happens to a tool, the process that it has stopped goes on.
func TestNativeGoesOn(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		pid, tool := hang(t), compile(t, killed)
		only(t, "eu-stack", "exec "+tool+` "$@"`)
		want := []string{"eu-stack left it stopped, and gorun continued it", "no native stack: eu-stack: it shows no stack"}
		if got := Native(t.Context(), []int{pid}, maxStack)[pid]; !reflect.DeepEqual(got, Traced{Notes: want}) {
			t.Errorf("%+v", got)
		}
		must.Soon(t, "it goes on", func() bool { return stopOf(pid) == running })
	})
	t.Run("asked to end", func(t *testing.T) {
		pid, debugger := hang(t), toolOf(t, "gdb")
		attach := debugger + ` -nx -batch -p $5 -ex 'shell echo $$ >%s; exec sleep 1000' -ex 'shell sleep 1000'`
		began := filepath.Join(t.TempDir(), "began")
		only(t, "eu-stack", "PATH=/usr/bin:/bin; exec "+fmt.Sprintf(attach, began))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan Traced)
		go func() { done <- Native(ctx, []int{pid}, maxStack)[pid] }()
		must.Soon(t, "it is stopped", func() bool {
			_, err := os.Stat(began)
			return err == nil && stopOf(pid) == traced
		})
		cancel()
		if got := <-done; got.Stack != "" || len(got.Notes) == 0 {
			t.Errorf("%+v", got)
		}
		if now := stopOf(pid); now != running {
			t.Errorf("it is %d", now)
		}
	})
}

// TestNoNative: a process whose stack cannot be shown has a line that says why.
func TestNoNative(t *testing.T) {
	pid := hang(t)
	for name, tt := range map[string]struct {
		tool, script, want string
	}{
		"no tool":   {"", "", "none of py-spy, eu-stack and gdb is there: install the package elfutils or gdb, or py-spy by pip"},
		"no output": {"gdb", "exit 3", "gdb: it shows no stack"},
		"complaint": {"gdb", "echo 'warning: odd\n\nno\x1b[2J such process' >&2", "gdb: no?[2J such process"},
		"denied": {"eu-stack", "exec /usr/bin/setpriv --reuid 65534 --clear-groups /usr/bin/eu-stack \"$@\"",
			"eu-stack: not permitted: the daemon lacks CAP_SYS_PTRACE (SYS_PTRACE in a container)"},
		"other bytes": {"eu-stack", "exec /usr/bin/yes", "eu-stack took too long"},
	} {
		t.Run(name, func(t *testing.T) {
			only(t, tt.tool, tt.script)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if got := Native(ctx, []int{pid}, maxStack)[pid]; !reflect.DeepEqual(got, Traced{Notes: []string{"no native stack: " + tt.want}}) {
				t.Errorf("%+v", got)
			}
		})
	}
	gone := exec.Command("/bin/true")
	must.Do(t, gone.Run())
	only(t, "gdb", "exit 3")
	for _, other := range []int{gone.Process.Pid, 0, -1} {
		if got := Native(t.Context(), []int{other}, maxStack)[other]; !reflect.DeepEqual(got.Notes, []string{"it has ended"}) {
			t.Errorf("%+v", got)
		}
	}
	t.Run("ends meanwhile", func(t *testing.T) {
		only(t, "gdb", "kill -KILL ${10}; echo gone >&2")
		if got := Native(t.Context(), []int{pid}, maxStack)[pid]; !reflect.DeepEqual(got, Traced{Notes: []string{"it has ended"}}) {
			t.Errorf("%+v", got)
		}
	})
}

// TestDenied: who may not trace a process reads which setting of the host forbids it.
func TestDenied(t *testing.T) {
	for _, tt := range []struct {
		scope string
		own   bool
		want  string
	}{
		{"1", true, "kernel.yama.ptrace_scope is 1; sysctl kernel.yama.ptrace_scope=0 permits it"},
		{"2", true, "kernel.yama.ptrace_scope is 2; sysctl kernel.yama.ptrace_scope=0 permits it"},
		{"3", true, "kernel.yama.ptrace_scope is 3, which forbids it until the host starts again"},
		{"0", true, "CAP_SYS_PTRACE"},
		{"", true, "CAP_SYS_PTRACE"},
		{"1", false, "of another user"},
	} {
		if got := denied(tt.scope, tt.own); !strings.HasPrefix(got, "not permitted: ") || !strings.Contains(got, tt.want) {
			t.Errorf("%q, %v: %s", tt.scope, tt.own, got)
		}
	}
}

// TestThreads: root sees where in the kernel each thread is, the main one first.
func TestThreads(t *testing.T) {
	pid := hang(t)
	var all []Thread
	must.Soon(t, "its threads wait", func() bool {
		all = Threads(pid, maxStack)
		return len(all) == 2 && all[0].State == "S" && all[1].State == "S"
	})
	if all[0].ID != pid || all[0].Name != "program" {
		t.Errorf("%+v", all)
	}
	if _, err := os.ReadFile("/proc/self/stack"); err == nil {
		for _, thread := range all {
			if !slices.ContainsFunc(thread.Kernel, func(f string) bool { return strings.Contains(f, "pause") }) ||
				thread.Wait == "" || !strings.HasPrefix(thread.Syscall, "34 ") && !strings.HasPrefix(thread.Syscall, "73 ") { // x86_64, aarch64
				t.Errorf("%+v", thread)
			}
		}
	}
	if few := Threads(pid, all[0].size()); len(few) != 1 || few[0].ID != pid {
		t.Errorf("%+v", few)
	}
	if none := Threads(0, maxStack); none != nil {
		t.Errorf("%+v", none)
	}
}
