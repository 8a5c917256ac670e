package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gorun/worker/packed"
)

// A static program cannot load a library, so RDMA needs another daemon: gorund-rdma, which is linked to the machine's C
// library. gorun contains it, compressed; the supervisor puts it into memory and starts it where the machine has what
// it takes. Otherwise the daemon is this program, and reports why.

const (
	rdmaProgram = "gorund-rdma" // its name in the archive that is part of this program
	rdmaCheck   = "--rdma-check"
	rdmaFor     = "--rdma-for" // NAME: the program whose supervisor starts this daemon
	withoutRDMA = "--without-rdma"

	// checkLimit bounds how long gorund-rdma takes to start, load the library and open the devices. The start of the job
	// waits for it.
	checkLimit = 3 * time.Second
)

// preferRDMA makes cmd start gorund-rdma, or, if that is impossible, tells the daemon why.
func preferRDMA(cmd *exec.Cmd, library string) (release func()) {
	program, err := openRDMA(library)
	if err != nil {
		cmd.Args = append(cmd.Args, withoutRDMA, err.Error())
		return func() {}
	}
	startAs(cmd, packed.Path(program))
	return func() { program.Close() }
}

// startAs makes cmd start another program as the daemon of this one.
func startAs(cmd *exec.Cmd, program string) {
	exe, err := os.Executable()
	if err != nil {
		exe = cmd.Path
	}
	cmd.Path, cmd.Args = program, append(cmd.Args, rdmaFor, exe)
}

// openRDMA returns gorund-rdma in memory, if it works here.
func openRDMA(library string) (*os.File, error) {
	if devices, _ := filepath.Glob("/dev/infiniband/uverbs*"); len(devices) == 0 && library == "" {
		return nil, errors.New("no RDMA device (/dev/infiniband/uverbs*); load ib_uverbs and its driver, pass it to containers")
	}
	program, err := packed.Open("/proc/self/exe", rdmaProgram)
	if err != nil {
		return nil, fmt.Errorf("open gorund-rdma: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	check := exec.CommandContext(ctx, packed.Path(program), "worker", rdmaCheck+"="+library)
	check.WaitDelay = time.Second // what the library starts may keep the output open
	check.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // the kernel sends that signal when this thread ends
	defer runtime.UnlockOSThread()
	out, err := check.CombinedOutput()
	if err != nil {
		program.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("gorund-rdma did not start within %v", checkLimit)
		}
		said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if check.ProcessState != nil && check.ProcessState.ExitCode() == 1 && said != "" {
			return nil, errors.New(said) // by checkRDMA
		}
		return nil, fmt.Errorf("gorund-rdma does not start here: %s", cmp.Or(said, err.Error()))
	}
	return program, nil
}

// rdmaWords are the arguments of a worker that concern RDMA.
type rdmaWords struct {
	wanted  bool   // supervisor: start the daemon that can use RDMA, if possible
	library string // supervisor: path of the library, "" for the system's
	exe     string // daemon: the name of the program that contains this one, "" if none does
	missing error  // daemon: why it is not rdmaProgram; nil if it is, or if RDMA was not requested
}

// takeRDMA separates the arguments that concern RDMA from the rest.
func takeRDMA(words []string) (rest []string, found rdmaWords) {
	for i := 0; i < len(words); i++ {
		name, value, _ := strings.Cut(words[i], "=")
		switch more := i+1 < len(words); {
		case name == WithRDMA && i == 1:
			found.wanted, found.library = true, value
		case words[i] == rdmaFor && more:
			i++
			found.exe = words[i]
		case words[i] == withoutRDMA && more:
			i++
			found.missing = errors.New(words[i])
		default:
			rest = append(rest, words[i])
		}
	}
	return rest, found
}
