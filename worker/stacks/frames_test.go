package stacks

import (
	"reflect"
	"strings"
	"testing"

	"gorun/contrib/must"
)

const elfutils = `PID 19408 - process
TID 19408:
#0  0x00007f3fe85e8545 clock_nanosleep@GLIBC_2.2.5 - /usr/lib/x86_64-linux-gnu/libc.so.6
#1  0x000055a3ac856172 - 1 at::native::add(at::Tensor const&, int (*)(int)) - /opt/lib torch/libtorch_cpu.so
#2  0x000055a3ac856172 - /tmp/hung
#3  0x000055a3ac856172
eu-stack: tid 19408: shown max number of frames (3, use -n 0 for unlimited)
TID 19410:
#0  0x00007f3fe85ecdf2 pause - [vdso: 19408]
`

const debugger = `[Thread debugging using libthread_db enabled]
#0  in no thread
warning: odd

Thread 1 (Thread 0x7fce97251740 (LWP 19408) "sleep"):
#0  __GI___clock_nanosleep (clock_id=..., rem=...) at ../sysdeps/unix/sysv/linux/clock_nanosleep.c:71
#1  0x00007fce97327e53 in at::native::add(at::Tensor const&, int (*)(int)) (x=..., this=...) from /opt/lib torch/libtorch_cpu.so
#2  0x000055d0bb8bb4af in ?? ()
(More stack frames follow...)

Thread 2 (process 19410):
#0  <signal handler called>
#1  0x000055d0bb8b7621 in pause () from /lib/libc.so.6
[Inferior 1 (process 19408) detached]
`

// spied is what py-spy 0.4 writes with --native, less what is of no interest here.
const spied = `[{"os_thread_id": 19408, "thread_name": "MainThread", "frames": [
  {"name": "clock_nanosleep", "filename": "/lib/libc.so.6", "module": "/lib/libc.so.6", "line": 0},
  {"name": "at::native::add.part.0", "filename": "add.cc", "module": "/lib/libtorch.so", "line": 3},
  {"name": "Loader.load", "filename": "/a/train.py", "module": null, "line": 9},
  {"name": "0x7fdf7984524a", "filename": "/lib/libc.so.6", "module": "/lib/libc.so.6", "line": 0}]}]`

func TestParseTools(t *testing.T) {
	const torch = "/opt/lib torch/libtorch_cpu.so"
	for name, tt := range map[string]struct {
		parse func([]byte) ([]thread, error)
		text  string
		want  []thread
	}{
		"eu-stack": {parseElfutils, elfutils, []thread{
			{ID: 19408, Frames: []frame{{"clock_nanosleep", "/usr/lib/x86_64-linux-gnu/libc.so.6", 0, ""},
				{"at::native::add(at::Tensor const&, int (*)(int))", torch, 0, ""}, {"??", "/tmp/hung", 0, ""}, {"??", "??", 0, ""}}},
			{ID: 19410, Frames: []frame{{"pause", "[vdso: 19408]", 0, ""}}}}},
		"gdb": {parseDebugger, debugger, []thread{
			{ID: 19408, Frames: []frame{{"__GI___clock_nanosleep", "../sysdeps/unix/sysv/linux/clock_nanosleep.c", 71, ""},
				{"at::native::add(at::Tensor const&, int (*)(int))", torch, 0, ""}, {"??", "??", 0, ""}}},
			{ID: 19410, Frames: []frame{{"<signal handler called>", "??", 0, ""}, {"pause", "/lib/libc.so.6", 0, ""}}}}},
		"py-spy": {parseDump, spied, []thread{
			{ID: 19408, Name: "MainThread", Frames: []frame{{"clock_nanosleep", "/lib/libc.so.6", 0, ""}, {"at::native::add.part.0", "add.cc", 3, ""},
				{"load", "/a/train.py", 9, ""}, {"??", "/lib/libc.so.6", 0, ""}}}}},
	} {
		got, err := tt.parse([]byte(tt.text))
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v\n%+v, want\n%+v", name, err, got, tt.want)
		}
	}
	for _, text := range []string{"", "TID 7:\n", "#0  0x1 main - /a\n", "Thread 1 (LWP 7):\nNo stack.\n"} {
		for _, parse := range []func([]byte) ([]thread, error){parseElfutils, parseDebugger} {
			if got, err := parse([]byte(text)); err == nil {
				t.Errorf("%q: %+v", text, got)
			}
		}
	}
}

// TestFormatIsBounded: whatever a tool writes, a stack takes no more than its share of a message.
func TestFormatIsBounded(t *testing.T) {
	threads, err := parseElfutils([]byte("TID 7:\n" + strings.Repeat("#0  0x1 "+strings.Repeat("f", 1000)+" - /lib\n", 1000)))
	must.Do(t, err)
	for _, most := range []int{maxStack, 4096, 300} {
		got := format(threads, 7, most)
		if len(got) > most || len(got) < most-longest-64 && most < maxStack || strings.Count(got, "\n") > 1+mostFrames || !strings.HasSuffix(got, "f\n") {
			t.Errorf("%d bytes of %d", len(got), most)
		}
	}
}

// FuzzParseTools: a process can have functions and files of any name, and a tool can write anything.
func FuzzParseTools(f *testing.F) {
	f.Add(elfutils, 7)
	f.Add(debugger, 7)
	f.Add(spied, 7)
	f.Fuzz(func(t *testing.T, text string, pid int) {
		spied, _ := parseDump([]byte(text))
		shown, _ := parseElfutils([]byte(text))
		debugged, _ := parseDebugger([]byte(text))
		for _, threads := range [][]thread{spied, shown, debugged} {
			if got := format(threads, pid, 4096); len(got) > 4096 || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' && r != '\n' }) {
				t.Errorf("%q", got)
			}
		}
	})
}
