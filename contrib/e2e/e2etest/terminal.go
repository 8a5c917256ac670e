//go:build linux

package e2etest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is a terminal with a simulated user: it collects the output of programs, and the test types.
type Terminal struct {
	Device *os.File // the programs' side
	t      *testing.T
	user   *os.File // the user's side
	mu     sync.Mutex
	text   bytes.Buffer
}

// NewTerminal opens a terminal that lives as long as the test.
func NewTerminal(t *testing.T) *Terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("open a terminal: %v", err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatalf("open a terminal: %v", err)
	}
	term := &Terminal{t: t, user: os.NewFile(uintptr(fd), "terminal")}
	if term.Device, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatalf("open a terminal: %v", err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for buf := make([]byte, 64<<10); ; {
			n, err := term.user.Read(buf)
			term.mu.Lock()
			term.text.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { term.Device.Close(); term.user.Close(); reading.Wait() })
	return term
}

// Run makes the terminal the command's controlling terminal, as in a shell's window.
func (term *Terminal) Run(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.Device, term.Device, term.Device
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
}

// Shows returns everything that was written to the terminal.
func (term *Terminal) Shows() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text.String()
}

// Await waits until the output matches.
func (term *Terminal) Await(pattern string) {
	term.t.Helper()
	wanted := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(60 * time.Second); !wanted.MatchString(term.Shows()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			term.t.Fatalf("no %s on the terminal:\n%q", pattern, term.Shows())
		}
	}
}

// Types sends text as typed by the user.
func (term *Terminal) Types(keys string) {
	term.t.Helper()
	if _, err := term.user.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// The characters of Ctrl with a letter.
const (
	CtrlC = "\x03"
	CtrlZ = "\x1a"
)
