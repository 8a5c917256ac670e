package stacks

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gorun/worker/proc"
)

// mostThreads bounds the threads of a process of which the kernel's view is kept.
const mostThreads = 64

// Thread is what the kernel shows of a thread. What it does not show to this user is empty.
type Thread struct {
	ID      int
	Name    string
	State   string   // a letter, such as S
	Wait    string   // function of the kernel that it waits in (wchan)
	Syscall string   // number of the system call that it is in, with its arguments; "running" if it is in none
	Kernel  []string // functions of the kernel, the innermost first
}

// Threads returns what the kernel shows of the threads of a process, the main one first, up to about most bytes.
func Threads(pid, most int) (all []Thread) {
	paths, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	var ids []int
	for _, path := range paths[:min(len(paths), mostTasks)] {
		if id, err := strconv.Atoi(filepath.Base(path)); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if i := slices.Index(ids, pid); i > 0 {
		ids = slices.Insert(slices.Delete(ids, i, i+1), 0, pid)
	}
	for _, id := range ids[:min(len(ids), mostThreads)] {
		t := threadOf(pid, id)
		if most -= t.size(); most < 0 {
			break
		}
		if t.State != "" { // else it has ended
			all = append(all, t)
		}
	}
	return all
}

func threadOf(pid, id int) Thread {
	task := "task/" + strconv.Itoa(id) + "/"
	status := proc.ReadOf(pid, task+"status")
	state, _, _ := strings.Cut(proc.Field(status, "State"), " ")
	t := Thread{ID: id, Name: clean(proc.Field(status, "Name")), State: clean(state), Kernel: parseKernel(proc.ReadOf(pid, task+"stack")),
		Syscall: clean(strings.TrimSpace(proc.ReadOf(pid, task+"syscall")))}
	if t.Wait = clean(strings.TrimSpace(proc.ReadOf(pid, task+"wchan"))); t.Wait == "0" { // not waiting, or not shown
		t.Wait = ""
	}
	return t
}

// size is about how many bytes it takes in a message.
func (t Thread) size() int {
	n := 64 + len(t.Name) + len(t.Wait) + len(t.Syscall)
	for _, function := range t.Kernel {
		n += len(function) + 3
	}
	return n
}
