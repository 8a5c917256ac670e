package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"gorun/launcher/output"
)

const (
	// otlpProgram pushes metrics by OTLP. Its libraries would make gorun a third larger.
	otlpProgram = "gorun-otlp"
	// otlpTimeout bounds its last push.
	otlpTimeout = 5 * time.Second
)

// findOTLP finds otlpProgram beside this binary, or in PATH.
func findOTLP() (path string, err error) {
	if path, err = findBeside(otlpProgram); err != nil {
		return "", &usageError{errors.New("--otlp needs gorun-otlp beside gorun or in PATH"), "install the package gorun-otlp, or put that program beside gorun"}
	}
	return path, nil
}

// fromHere returns the address at which this host reaches a listener. One that listens on all interfaces is reached at
// localhost, for which no proxy is used.
func fromHere(address string) string {
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsUnspecified() {
		return fmt.Sprintf("localhost:%d", at.Port())
	}
	return address
}

// pushMetrics has the program push what is served at one address to another until stop is called.
func pushMetrics(from, to string, mux *output.Mux) (stop func(), err error) {
	path, err := findOTLP()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, from, to)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches gorun alone, which then asks for the last push
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", otlpProgram, err)
	}
	ended, late := make(chan struct{}), new(atomic.Bool)
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			mux.Note("%s", lines.Text())
		}
		io.Copy(io.Discard, said) // after a line that is too long
		if err := cmd.Wait(); late.Load() {
			mux.Note("gorun: warning: %s could not push the last metrics within %v", otlpProgram, otlpTimeout)
		} else if err != nil {
			mux.Note("gorun: warning: %s ended: %v; nothing pushes the metrics now", otlpProgram, err)
		}
	}()
	return func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			return
		case <-time.After(otlpTimeout):
		}
		late.Store(true)
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its group, as it may be a script that has started the program
		said.Close()                                    // which a process that left the group may hold open
		<-ended
	}, nil
}
