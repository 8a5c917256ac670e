package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"gorun/launcher/output"
)

const (
	// otlpProgram pushes metrics by OTLP. Its libraries would make gorun a third larger.
	otlpProgram = "gorun-otlp"
	// otlpTimeout is how long it has for its last push.
	otlpTimeout = 5 * time.Second
)

// findOTLP finds that program beside this one, or in PATH.
func findOTLP() (path string, err error) {
	if self, err := os.Executable(); err == nil {
		if path, err = exec.LookPath(filepath.Join(filepath.Dir(self), otlpProgram)); err == nil {
			return path, nil
		}
	}
	if path, err = exec.LookPath(otlpProgram); err != nil {
		return "", &usageError{errors.New("--otlp needs gorun-otlp beside gorun or in PATH"), "(cd contrib/otlp && go build -o /usr/local/bin/gorun-otlp .)"}
	}
	return path, nil
}

// pushMetrics has the program push what is served at one address to another until stop is called.
func pushMetrics(from, to string, mux *output.Mux) (stop func(), err error) {
	path, err := findOTLP()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, from, to)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for gorun, which lets it push the end
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", otlpProgram, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			mux.Note("%s", lines.Text())
		}
		io.Copy(io.Discard, said) // after a line that is too long
		if err := cmd.Wait(); err != nil {
			mux.Note("gorun: warning: %s ended: %v; metrics are not pushed any more", otlpProgram, err)
		}
	}()
	return func() {
		cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(otlpTimeout, func() { cmd.Process.Kill() })
		defer kill.Stop()
		<-ended
	}, nil
}
