package counters

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stackTimeout is how long a process has to write its stacks. It does so in its signal handler, whatever it is
	// doing, unless it is stopped or stuck in the kernel.
	stackTimeout = 500 * time.Millisecond
	// stackQuiet is how long nothing is written once a process has written all.
	stackQuiet = 50 * time.Millisecond
	// sleepLooks is how often in a row, with pauses, all threads of a process must be asleep before Ask requests all
	// their stacks.
	sleepLooks = 3
	sleepPause = 3 * time.Millisecond
	// maxStack bounds what a rank can make its daemon keep and send.
	maxStack = 64 << 10
)

// Stacks is a pipe into which a process writes the stacks of its threads. Any goroutine may use it.
type Stacks struct {
	mu          sync.Mutex // held while a process is asked
	read, write *os.File
	closed      bool
}

// NewStacks makes a pipe.
func NewStacks() (*Stacks, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe for stacks: %w", err)
	}
	return &Stacks{read: r, write: w}, nil
}

// Path returns where processes of the same user can open the pipe for writing, as long as this process has it.
func (s *Stacks) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.write.Fd()) }

// Ask makes a process write the stacks of all its threads if all of them sleep, or else the stack of its main thread.
// It returns what the process writes within half a second; "" if it writes nothing.
func (s *Stacks) Ask(pid int, c Counts) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || pid <= 0 { // the daemon ends: another process may have the pid by now
		return ""
	}
	text := make([]byte, 0, maxStack)
	s.take(text, time.Millisecond) // what came too late last time: a pipe has no room for more
	signal := c.MainSignal
	if c.Signal != 0 && sleeps(pid) {
		signal = c.Signal
	}
	if signal == 0 || unix.Kill(pid, unix.Signal(signal)) != nil {
		return ""
	}
	for end := time.Now().Add(stackTimeout); len(text) < maxStack; {
		wait := time.Until(end)
		if len(text) > 0 {
			wait = min(wait, stackQuiet)
		}
		had := len(text)
		if text = s.take(text, wait); len(text) == had {
			break
		}
	}
	return string(text)
}

// sleeps reports whether all threads of a process sleep, as they do in a process that hangs. Python's faulthandler
// reads the frames of all threads without holding any of them, so a thread that begins or ends meanwhile crashes the
// process.
func sleeps(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	for look := range sleepLooks {
		if look > 0 {
			time.Sleep(sleepPause)
		}
		tasks, err := os.ReadDir(dir)
		if err != nil {
			return false
		}
		for _, task := range tasks {
			stat, err := os.ReadFile(filepath.Join(dir, task.Name(), "stat"))
			at := bytes.LastIndex(stat, []byte(") ")) // the state is behind the name, which may have any character
			if err != nil || at < 0 || bytes.HasPrefix(stat[at+2:], []byte("R")) {
				return false
			}
		}
	}
	return true
}

// take appends what is in the pipe, or comes within a time, as far as the text has room.
func (s *Stacks) take(text []byte, wait time.Duration) []byte {
	s.read.SetReadDeadline(time.Now().Add(wait))
	n, _ := s.read.Read(text[len(text):cap(text)]) // 0 if nothing comes
	return text[:len(text)+n]
}

// Close closes the pipe.
func (s *Stacks) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.read.Close()
	s.write.Close()
}
