//go:build linux

package lab

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Freeze pauses the host as a hypervisor does: its processes stop, and its network answers nothing, not even with an
// acknowledgement by the kernel. The link stays up, for the host as for others.
func (h *LabHost) Freeze() error {
	pid, err := h.runningPID()
	if err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.lab.ip(h.lab.rackPID, "link set "+h.port+" nomaster"); err != nil {
		return fmt.Errorf("freeze %s: %w", h.name, err)
	}
	// A process that is not stopped yet may start another, so look again until all are. A process that waits in the
	// kernel, perhaps for a child that was stopped before its exec, stops before it goes on.
	signalled := map[int]bool{}
	for deadline := time.Now().Add(endLimit); ; {
		running := 0
		for _, p := range processesOf(pid) {
			if p.State == 'T' || p.State == 'Z' || p.State == 'X' || p.State == 'D' && signalled[p.PID] {
				continue
			}
			running++
			signalled[p.PID] = true
			unix.Kill(p.PID, unix.SIGSTOP) // a process that is gone is fine, too
		}
		if running == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("freeze %s: %d processes do not stop", h.name, running)
		}
		time.Sleep(time.Millisecond)
	}
}

// Thaw resumes a frozen host, including processes that were stopped before Freeze.
func (h *LabHost) Thaw() error {
	pid, err := h.runningPID()
	if err != nil {
		return fmt.Errorf("thaw: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.lab.ip(h.lab.rackPID, "link set "+h.port+" master lab0"); err != nil {
		return fmt.Errorf("thaw %s: %w", h.name, err)
	}
	for _, p := range processesOf(pid) {
		unix.Kill(p.PID, unix.SIGCONT)
	}
	return nil
}
