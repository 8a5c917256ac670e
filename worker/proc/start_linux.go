package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// child is a started process and our ends of its pipes.
type child struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File // stdin may be nil
}

// spawn starts a rank. The calling thread becomes its parent: when that thread ends, the kernel kills the rank
// (PR_SET_PDEATHSIG refers to the thread, not to the process).
func spawn(spec Spec, path string, env []string) (_ *child, err error) {
	c := &child{cmd: &exec.Cmd{
		Path:        path,
		Args:        spec.Argv,
		Env:         env,
		Dir:         spec.Dir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}}
	var stdin, stdout, stderr *os.File // the rank's ends
	defer func() {
		closeAll(stdin, stdout, stderr)
		if err != nil {
			closeAll(c.stdin, c.stdout, c.stderr)
		}
	}()
	pipe := func(r, w **os.File) {
		if err == nil {
			*r, *w, err = os.Pipe()
		}
	}
	pipe(&c.stdout, &stdout)
	pipe(&c.stderr, &stderr)
	c.cmd.Stdout, c.cmd.Stderr = stdout, stderr
	if spec.Stdin {
		pipe(&stdin, &c.stdin)
		c.cmd.Stdin = stdin
	}
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	if spec.Inherit != nil {
		c.cmd.ExtraFiles = []*os.File{spec.Inherit}
	}
	restore, err := bind(spec.CPUs)
	if err != nil {
		return nil, err
	}
	defer restore()
	defer preferMemory(spec.Nodes)()
	defer changeSlack(daemonSlack, usualSlack)()
	if err := c.cmd.Start(); err != nil {
		return nil, notStartable(path, err)
	}
	return c, nil
}

// bind restricts the calling thread to cpus, which a process it starts inherits.
func bind(cpus []int) (restore func(), err error) {
	if len(cpus) == 0 {
		return func() {}, nil
	}
	var before, set unix.CPUSet
	for _, n := range cpus {
		if set.Set(n); !set.IsSet(n) {
			return nil, fmt.Errorf("bind to CPU %d: no such number", n)
		}
	}
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read CPU binding: %w", err)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return nil, fmt.Errorf("bind to CPUs %v: none of them may be used here", cpus)
		}
		return nil, fmt.Errorf("bind to CPUs %v: %w", cpus, err)
	}
	return func() { unix.SchedSetaffinity(0, &before) }, nil
}

// Memory policies of set_mempolicy(2).
const (
	policyDefault       = 0
	policyPreferred     = 1
	policyPreferredMany = 5
	maxNodes            = 1024
)

// preferMemory makes the calling thread, and so a process it starts, prefer memory from these nodes. Where the kernel
// has no NUMA, is too old, or a container may not choose, memory still comes from the node the rank runs on.
func preferMemory(nodes []int) (restore func()) {
	var mask [maxNodes / 64]uint64
	for _, n := range nodes {
		if n < 0 || n >= maxNodes {
			return func() {}
		}
		mask[n/64] |= 1 << (n % 64)
	}
	policy := policyPreferredMany
	switch len(nodes) {
	case 0:
		return func() {}
	case 1:
		policy = policyPreferred
	}
	_, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, uintptr(policy), uintptr(unsafe.Pointer(&mask)), maxNodes)
	if errno != 0 {
		return func() {}
	}
	return func() { unix.Syscall(unix.SYS_SET_MEMPOLICY, policyDefault, 0, 0) }
}

// BindSelf restricts all threads of this process, and those they start, to CPUs. Ranks need a binding of their own from
// then on.
func BindSelf(cpus []int) error {
	set := setOf(cpus)
	err := eachThread(func(id int) error {
		if err := unix.SchedSetaffinity(id, &set); !errors.Is(err, unix.ESRCH) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("bind daemon to CPUs %v: %w", cpus, err)
	}
	return nil
}

// eachThread calls f for all threads of this process. New threads inherit the result.
func eachThread(f func(id int) error) error {
	done := map[int]bool{}
	for { // until no new thread has appeared
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		again := false
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil || done[id] {
				continue
			}
			done[id], again = true, true
			if err := f(id); err != nil {
				return err
			}
		}
		if !again {
			return nil
		}
	}
}

// BindThread restricts the calling thread, to which its goroutine must be locked, to these CPUs.
func BindThread(cpus []int) error {
	set := setOf(cpus)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind thread to CPUs %v: %w", cpus, err)
	}
	return nil
}

func setOf(cpus []int) (set unix.CPUSet) {
	for _, n := range cpus {
		set.Set(n)
	}
	return set
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
