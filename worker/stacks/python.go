package stacks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"gorun/worker/proc"
)

const (
	program = "py-spy"
	// spyTimeout bounds how long py-spy may take for all ranks of a host, spies how many of it run at a time.
	spyTimeout = 2 * time.Second
	spies      = 4
	// maxDump bounds what is read of py-spy, and maxStack what of that is kept of a process.
	maxDump  = 1 << 20
	maxStack = 64 << 10
	// mostFrames and longest bound the frames of a thread, the innermost ones, so that one thread always fits.
	mostFrames = 128
	longest    = 200
)

// Python returns the stacks of processes as py-spy finds them, in the form of Python's faulthandler, by process. What
// py-spy cannot read, such as a program in C, is left out. py-spy reads the memory of a process without attaching to it:
// that works for one that is stopped or stuck, too, while a py-spy that was killed would leave behind a process that it
// has stopped. So there are no frames of C.
func Python(ctx context.Context, pids []int) map[int]string {
	ctx, cancel := context.WithTimeout(ctx, spyTimeout)
	defer cancel()
	stacks := ofEach(pids, func(pid int) string { return spy(ctx, pid) })
	maps.DeleteFunc(stacks, func(_ int, stack string) bool { return stack == "" })
	return stacks
}

// ofEach calls look for all processes, for some at a time, and returns the results.
func ofEach[T any](pids []int, look func(pid int) T) map[int]T {
	found := make([]T, len(pids))
	turns := make(chan struct{}, spies)
	var all sync.WaitGroup
	for i, pid := range pids {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			found[i] = look(pid)
		})
	}
	all.Wait()
	results := map[int]T{}
	for i, pid := range pids {
		results[pid] = found[i]
	}
	return results
}

// spy has py-spy read the stacks of a process; "" if there is no py-spy, or it cannot.
func spy(ctx context.Context, pid int) string {
	path := find(pid, program)
	if pid <= 0 || path == "" || ctx.Err() != nil {
		return ""
	}
	cmd := exec.CommandContext(ctx, path, "dump", "--json", "--nonblocking", "--pid", strconv.Itoa(pid))
	cmd.Dir, cmd.WaitDelay = "/", 100*time.Millisecond
	out := &kept{most: maxDump}
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		return ""
	}
	threads, _ := parseDump(out.text) // none if it is not py-spy's
	return format(threads, pid, maxStack)
}

// find returns a program for a process, such as its py-spy: one beside its Python or in its PATH, or else one in this
// process's PATH; "" if there is none. A process of another user could name any program, and one in a container has other
// files.
func find(pid int, name string) string {
	var dirs []string
	if same(pid) {
		if first, _, _ := strings.Cut(proc.ReadOf(pid, "cmdline"), "\x00"); first != "" {
			dirs = append(dirs, filepath.Dir(first)) // of a virtual environment, whose Python is a link
		}
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
			dirs = append(dirs, filepath.Dir(exe))
		}
		for variable := range strings.SplitSeq(proc.ReadOf(pid, "environ"), "\x00") {
			if list, ok := strings.CutPrefix(variable, "PATH="); ok {
				dirs = append(dirs, filepath.SplitList(list)...)
			}
		}
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && filepath.IsAbs(dir) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// same reports whether a process is of this one's user, and sees the same files.
func same(pid int) bool {
	mounts := func(process string) string {
		name, _ := os.Readlink("/proc/" + process + "/ns/mnt") // "" if it has ended or access is denied
		return name
	}
	ids := strings.Fields(proc.Field(proc.ReadOf(pid, "status"), "Uid"))
	other := func(id string) bool { return id != strconv.Itoa(os.Geteuid()) }
	return len(ids) > 0 && !slices.ContainsFunc(ids, other) && mounts(strconv.Itoa(pid)) == mounts("self")
}

// thread is one of Python's, as py-spy writes it.
type thread struct {
	ID     int     `json:"os_thread_id"`
	Name   string  `json:"thread_name"`
	Frames []frame `json:"frames"` // the innermost first
}

type frame struct {
	Function string `json:"name"`
	File     string `json:"filename"`
	Line     int    `json:"line"`
	Module   string `json:"module"` // of functions of C
}

// parseDump reads what py-spy writes about a process, the oldest thread last.
func parseDump(text []byte) (threads []thread, err error) {
	if err := json.Unmarshal(text, &threads); err != nil {
		return nil, fmt.Errorf("read py-spy's output: %w", err)
	}
	for _, t := range threads {
		for i, f := range t.Frames {
			if f.Module == "" {
				t.Frames[i].Function = f.Function[strings.LastIndex(f.Function, ".")+1:] // faulthandler writes no class before it
			} else {
				t.Frames[i] = native(f.Function, f.File, f.Line)
			}
		}
	}
	return threads, nil
}

// format writes stacks as faulthandler does, with the main thread of a process last. Where not all fit into most bytes,
// other threads are left out, and then outer frames.
func format(threads []thread, pid, most int) string {
	threads = slices.DeleteFunc(threads, func(t thread) bool { return len(t.Frames) == 0 })
	if len(threads) == 0 {
		return ""
	}
	main := slices.IndexFunc(threads, func(t thread) bool { return t.ID == pid })
	if main < 0 {
		main = slices.IndexFunc(threads, func(t thread) bool { return t.Name == "MainThread" })
	}
	if main < 0 {
		main = len(threads) - 1
	}
	last := threads[main].text(most)
	var text strings.Builder
	for i, t := range threads {
		if one := t.text(most); i != main && text.Len()+len(one)+1+len(last) <= most {
			text.WriteString(one + "\n")
		}
	}
	return text.String() + last
}

// text is the stack of a thread in up to most bytes.
func (t thread) text(most int) string {
	text := fmt.Sprintf("Thread 0x%x (most recent call first):\n", uint(t.ID))
	for _, f := range t.Frames[:min(len(t.Frames), mostFrames)] {
		line := fmt.Sprintf("  File \"%s\", line %d in %s\n", clean(f.File), max(f.Line, 0), clean(f.Function))
		if len(text)+len(line) > most {
			break
		}
		text += line
	}
	return text
}

// clean keeps a name on its line, and short.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	return strings.ToValidUTF8(name[max(len(name)-longest, 0):], "")
}
