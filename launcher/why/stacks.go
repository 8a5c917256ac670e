package why

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Frame is a line of a stack as Python's faulthandler writes it, or a function of C or of the kernel.
type Frame struct {
	File     string
	Line     int // 0 for a function of C whose source is not known; File is its library then
	Function string
	Kernel   bool
}

var frameLine = regexp.MustCompile(`^ *File "(.*)", line (\d+) in (.*)$`)

// threads returns the frames of each thread of a stack that faulthandler wrote, the innermost first. The main thread is the last.
func threads(stack string) [][]Frame {
	all := [][]Frame{nil}
	for line := range strings.Lines(stack) {
		line = strings.TrimRight(line, "\r\n")
		if begins(line) {
			all = append(all, nil)
		} else if m := frameLine.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[2])
			all[len(all)-1] = append(all[len(all)-1], Frame{File: m[1], Line: n, Function: m[3]})
		}
	}
	return all
}

// Main returns the frames of the main thread.
func Main(stack string) []Frame {
	all := threads(stack)
	return all[len(all)-1]
}

// begins reports whether a line is the first of a thread, or of the only one.
func begins(line string) bool {
	return strings.HasPrefix(line, "Thread ") || strings.HasPrefix(line, "Current thread ") || strings.HasPrefix(line, "Stack (")
}

func (f Frame) base() string { return path.Base(f.File) }

// library reports whether a frame is of gorun's binding or of Python's library, rather than of the user.
func (f Frame) library() bool {
	return strings.HasPrefix(f.File, "<frozen ") || strings.Contains(f.File, "/gorun/") || strings.Contains(f.File, "/shim/horovod/") ||
		strings.Contains(f.File, "/lib/python3") && !f.installed()
}

// installed reports whether a frame is of a package that was installed.
func (f Frame) installed() bool { return strings.Contains(f.File, "-packages/") }

// short is the function and the line, or the line alone outside of functions.
func (f Frame) short() string {
	if f.Function == "<module>" {
		return fmt.Sprintf("%s:%d", f.base(), f.Line)
	}
	return fmt.Sprintf("%s (%s:%d)", f.Function, f.base(), f.Line)
}

func (f Frame) String() string {
	if f.Kernel {
		return f.Function + " (kernel)"
	}
	if f.Line == 0 {
		return fmt.Sprintf("%s (%s)", f.Function, f.base())
	}
	return fmt.Sprintf("%s (%s:%d)", f.Function, f.File, f.Line)
}

// loads reports whether the main thread of a stack is in the iterator of a data loader.
func loads(stack string) bool {
	return slices.ContainsFunc(Main(stack), func(f Frame) bool {
		return f.base() == "dataloader.py" || f.Function == "loading" && f.base() == "counters.py"
	})
}

// Stack is a stack that some ranks have in common.
type Stack struct {
	Ranks  []int
	Frames []Frame
}

// frames returns what a rank's main thread is in: Python's functions, with the kernel's above them where the rank waits for
// a file or is stuck, or the kernel's alone. Functions of C stand between them, if a user has asked for them.
func (f *Finding) frames() (frames []Frame) {
	python, native := Main(f.Stack), Main(f.Native)
	if len(python) == 0 || len(native) > 0 || blocked(f.State) {
		for _, function := range f.kernel() {
			frames = append(frames, Frame{Function: function, Kernel: true})
		}
	}
	switch {
	case f.Tool == "py-spy" && len(native) > 0: // it has Python's functions in their places
		return append(frames, native...)
	case len(python) > 0:
		native = native[:inPython(native)]
	}
	return slices.Concat(frames, native, python)
}

// kernel returns the kernel's functions, or the one that the main thread waits in, where the kernel shows no more than that.
func (f *Finding) kernel() []string {
	if len(f.Kernel) == 0 && len(f.Threads) > 0 && f.Threads[0].Wait != "" {
		return []string{f.Threads[0].Wait}
	}
	return f.Kernel
}

// inPython returns where in a stack Python runs a script: the functions of C from there on say no more than the script's.
func inPython(native []Frame) int {
	i := slices.IndexFunc(native, func(f Frame) bool { return strings.HasPrefix(f.Function, "_PyEval_EvalFrame") })
	if i < 0 {
		return len(native)
	}
	return i
}

// Note is a line about the stacks of ranks of one host.
type Note struct {
	Ranks      []int
	Host, Text string
}

// Notes returns what there is to say about the functions of C, equal lines together.
func Notes(all []Finding) (notes []Note) {
	for _, f := range all {
		for _, text := range f.Notes {
			i := slices.IndexFunc(notes, func(n Note) bool { return n.Host == f.Host && n.Text == text })
			if i < 0 {
				notes = append(notes, Note{Host: f.Host, Text: text})
				i = len(notes) - 1
			}
			notes[i].Ranks = append(notes[i].Ranks, f.Rank)
		}
	}
	return notes
}

// Merge returns the stacks of the main threads, the commonest first. Ranks without one are left out.
func Merge(all []Finding) (merged []Stack) {
	for _, f := range all {
		frames := f.frames()
		if len(frames) == 0 {
			continue
		}
		i := slices.IndexFunc(merged, func(s Stack) bool { return slices.Equal(s.Frames, frames) })
		if i < 0 {
			merged = append(merged, Stack{Frames: frames})
			i = len(merged) - 1
		}
		merged[i].Ranks = append(merged[i].Ranks, f.Rank)
	}
	slices.SortStableFunc(merged, func(a, b Stack) int { return cmp.Compare(len(b.Ranks), len(a.Ranks)) })
	return merged
}
