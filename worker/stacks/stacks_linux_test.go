package stacks

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/worker/proc"
)

func TestParseKernel(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil,
		"[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]\n[<0>] do_syscall_64+0x5b/0x90\n":                    {"nfs_wait_bit_killable", "do_syscall_64"},
		"[<ffffffff8121>] pipe_read.constprop.0+0x1/0x2\n[<ffffffffffffffff>] 0xffffffffffffffff\n":       {"pipe_read.constprop.0"},
		"[<0>] a\x1b[2J+0x1/0x2\n[<0>] +0x1/0x2\nb+0x1\n[<0>] " + strings.Repeat("c", 200) + "+0x1/0x2\n": nil,
		strings.Repeat("[<0>] f+0x1/0x2\n", 100):                                                          slices.Repeat([]string{"f"}, mostFunctions),
	} {
		if got := parseKernel(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// start runs a program until the test ends.
func start(t *testing.T, env []string, name string, args ...string) int {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = env
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// TestKernel: whoever may see the kernel's stack sees where a process sleeps; others see nothing.
func TestKernel(t *testing.T) {
	pid := start(t, nil, "sleep", "1000")
	if _, err := os.ReadFile("/proc/self/stack"); err != nil {
		if got := Kernel(pid); got != nil {
			t.Errorf("%v, but %q", err, got)
		}
		return
	}
	must.Soon(t, "it sleeps", func() bool {
		return slices.ContainsFunc(Kernel(pid), func(name string) bool { return strings.Contains(name, "nanosleep") })
	})
}

// dumped is what py-spy 0.4 writes, less what is of no interest here.
const dumped = `[
  {"pid": 7, "thread_id": 140, "thread_name": "Thread-1 (run)", "os_thread_id": 8, "active": false, "owns_gil": false,
   "frames": [{"name": "Condition.wait", "filename": "/usr/lib/python3.11/threading.py", "module": null, "line": 331, "locals": null}]},
  {"pid": 7, "thread_id": 139, "thread_name": "MainThread", "os_thread_id": 7, "active": false, "owns_gil": false,
   "frames": [{"name": "load", "filename": "/a/train\n.py", "line": 3}, {"name": "<module>", "filename": "/a/train.py", "line": 9}]}
]`

const wantDumped = `Thread 0x8 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Thread 0x7 (most recent call first):
  File "/a/train?.py", line 3 in load
  File "/a/train.py", line 9 in <module>
`

func TestFormat(t *testing.T) {
	frames := func(n int) []frame { return slices.Repeat([]frame{{"f", "/" + strings.Repeat("x", 1000), -1, ""}}, n) }
	for name, tt := range map[string]struct {
		text string
		last string // in the last line
	}{
		"main thread by its process": {dumped, "line 9 in <module>"},
		"main thread by its name":    {strings.ReplaceAll(dumped, `"os_thread_id"`, `"x"`), "line 9 in <module>"},
		"oldest thread":              {strings.NewReplacer(`"os_thread_id"`, `"x"`, "MainThread", "").Replace(dumped), "line 9 in <module>"},
		"unknown ids":                {strings.NewReplacer(`"os_thread_id": 8`, `"os_thread_id": null`, `"os_thread_id": 7`, `"os_thread_id": 1`).Replace(dumped), "line 9 in <module>"},
		"main thread listed first":   {strings.ReplaceAll(strings.ReplaceAll(dumped, `"os_thread_id": 7`, `"os_thread_id": 1`), `"os_thread_id": 8`, `"os_thread_id": 7`), "line 331 in wait"},
		"no threads":                 {"[]", ""},
		"no frames":                  {`[{"thread_name": "MainThread", "frames": []}]`, ""},
		"large":                      {dump(t, []thread{{8, "", frames(90)}, {9, "", frames(90)}, {10, "", frames(3)}, {7, "", frames(1000)}}), "x\", line 0 in f"},
	} {
		threads, err := parseDump([]byte(tt.text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := format(threads, 7, maxStack)
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if last := lines[len(lines)-1]; !strings.HasSuffix(last, tt.last) || got == "" != (tt.last == "") || len(got) > maxStack {
			t.Errorf("%s: %d bytes end with %q, want %q", name, len(got), last, tt.last)
		}
	}
	threads, err := parseDump([]byte(dumped))
	if got := format(threads, 7, maxStack); err != nil || got != wantDumped {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := parseDump([]byte(`[{"frames": `)); err == nil {
		t.Error("a part is taken for all")
	}
}

func dump(t *testing.T, threads []thread) string {
	b, err := json.Marshal(threads)
	must.Do(t, err)
	return string(b)
}

// spyAs has processes with a PATH of its own find a program as their py-spy.
func spyAs(t *testing.T, script string) (pid int, dir string) {
	dir = t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script), 0o755))
	sleep, err := exec.LookPath("sleep")
	must.Do(t, err)
	pid = start(t, []string{"PATH=relative:" + dir}, sleep, "1000")
	must.Soon(t, "it has its environment", func() bool { return strings.Contains(proc.ReadOf(pid, "environ"), dir) })
	return pid, dir
}

// TestPython: a process is looked at by the py-spy that it finds itself, without being stopped.
func TestPython(t *testing.T) {
	pid, dir := spyAs(t, `echo "$*" >"$(dirname "$0")/args"; cat <<'END'`+"\n"+dumped+"\nEND\n")
	other, _ := spyAs(t, "exit 1")
	var got map[int]string
	must.Soon(t, "py-spy writes", func() bool { // within its time, on a busy machine
		got = Python(t.Context(), []int{pid, 0, other, -1})
		return got[pid] != ""
	})
	if want := map[int]string{pid: format(first(parseDump([]byte(dumped))), pid, maxStack)}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || !strings.HasPrefix(string(args), "dump --json --nonblocking --pid ") {
		t.Errorf("%q, %v", args, err)
	}
}

func first[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// TestPythonIsBounded: a py-spy that writes for ever, or nothing, is given up.
func TestPythonIsBounded(t *testing.T) {
	loud, _ := spyAs(t, "exec yes")
	if got := Python(t.Context(), []int{loud}); len(got) > 0 {
		t.Errorf("%v", got)
	}
	silent, dir := spyAs(t, `echo >"$(dirname "$0")/began"; exec sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan map[int]string)
	go func() { done <- Python(ctx, []int{silent}) }()
	must.Soon(t, "py-spy begins", func() bool {
		_, err := os.Stat(filepath.Join(dir, "began"))
		return err == nil
	})
	cancel()
	select {
	case got := <-done:
		if len(got) > 0 {
			t.Errorf("%v", got)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for py-spy")
	}
}

// FuzzParse: a process can have functions and files of any name, and a py-spy can write anything.
func FuzzParse(f *testing.F) {
	f.Add(dumped, 7)
	f.Add("[<0>] do_syscall_64+0x5b/0x90\n", 0)
	f.Fuzz(func(t *testing.T, text string, pid int) {
		if functions := parseKernel(text); len(functions) > mostFunctions || strings.ContainsFunc(strings.Join(functions, ""), odd) {
			t.Errorf("%q", functions)
		}
		threads, err := parseDump([]byte(text))
		if err != nil {
			return
		}
		frames := 0
		for _, one := range threads {
			frames += 1 + len(one.Frames)
		}
		if got := format(threads, pid, maxStack); len(got) > maxStack || strings.Count(got, "\n") > frames+len(threads) {
			t.Errorf("%d bytes, %d lines of %d frames", len(got), strings.Count(got, "\n"), frames)
		}
	})
}
