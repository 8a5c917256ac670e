package stacks

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// errNoThreads is for output of a tool without a stack in it.
var errNoThreads = errors.New("find threads: there is none")

var (
	// elfutilsThread and elfutilsFrame are lines such as "TID 7:" and "#1  0x00007f04 read@GLIBC_2.2.5 - /lib/libc.so.6". A
	// function without a symbol has no name there, and C++ names have spaces.
	elfutilsThread = regexp.MustCompile(`^TID (\d+):$`)
	elfutilsFrame  = regexp.MustCompile(`^#\d+ +0x[0-9a-f]+(?: - 1)?(?: (.*?))??(?: - (/.*|\[.*))?$`)
	// debuggerThread and debuggerFrame are lines such as `Thread 1 (Thread 0x7f04 (LWP 7) "a"):` and
	// "#1  0x00007f04 in read (fd=...) from /lib/libc.so.6", which ends with "at FILE:LINE" where the source is known.
	debuggerThread = regexp.MustCompile(`^Thread \d+ \(.*?(?:LWP|process) (\d+)`)
	debuggerFrame  = regexp.MustCompile(`^#\d+ +(?:0x[0-9a-f]+ in )?(.*?)(?: at (.*):(\d+)| from (.*))?$`)
)

// parseElfutils reads what eu-stack -m writes.
func parseElfutils(text []byte) ([]thread, error) {
	return parseLines(text, elfutilsThread, func(line string) (f frame, ok bool) {
		m := elfutilsFrame.FindStringSubmatch(line)
		if m == nil {
			return f, false
		}
		name, _, _ := strings.Cut(m[1], "@") // the version of a symbol
		return native(name, m[2], 0), true
	})
}

// parseDebugger reads what gdb writes of all threads, without the arguments' values.
func parseDebugger(text []byte) ([]thread, error) {
	return parseLines(text, debuggerThread, func(line string) (f frame, ok bool) {
		m := debuggerFrame.FindStringSubmatch(line)
		if m == nil {
			return f, false
		}
		name := m[1]
		if i := strings.LastIndex(name, " ("); i >= 0 { // its arguments; a C++ name can have parentheses, too
			name = name[:i]
		}
		n, _ := strconv.Atoi(m[3]) // 0 if it is not known
		return native(name, m[2]+m[4], n), true
	})
}

// parseLines reads threads that begin with a line which has their id, and the frames below, the innermost first.
func parseLines(text []byte, begins *regexp.Regexp, frameOf func(line string) (frame, bool)) (threads []thread, err error) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if m := begins.FindStringSubmatch(line); m != nil {
			id, _ := strconv.Atoi(m[1])
			threads = append(threads, thread{ID: id})
			continue
		}
		if len(threads) == 0 {
			continue
		}
		if f, ok := frameOf(line); ok {
			last := &threads[len(threads)-1]
			last.Frames = append(last.Frames, f)
		}
	}
	for _, t := range threads {
		if len(t.Frames) > 0 {
			return threads, nil
		}
	}
	return nil, errNoThreads
}

// native makes a frame of C. Of a name that is long, as C++ has them, the beginning says most.
func native(name, file string, line int) frame {
	if name == "" || strings.HasPrefix(name, "0x") {
		name = "??" // not its address, which differs from process to process
	}
	if file == "" {
		file = "??"
	}
	return frame{Function: name[:min(len(name), longest)], File: file, Line: line}
}
