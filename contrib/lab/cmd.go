//go:build linux

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// searchPath is the PATH of a command on a host, the one that Debian gives to root.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Cmd is an exec.Cmd whose process starts on a host. Its Process.Pid is the machine's number for it, so
// that a test can kill exactly that process.
type Cmd struct {
	*exec.Cmd
	host *LabHost
}

// Command prepares a command that runs on the host as root, in its home, with the environment of a fresh
// login; the caller may change all of exec.Cmd's fields. The command ends with the host.
func (h *LabHost) Command(ctx context.Context, name string, args ...string) *Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=" + searchPath, "HOME=" + home, "USER=root", "LOGNAME=root", "SHELL=/bin/sh", "LANG=C.UTF-8", "GORUN_ALLOW_ROOT=1"}
	cmd.Dir = home
	cmd.WaitDelay = 2 * time.Second
	return &Cmd{Cmd: cmd, host: h}
}

// Exec runs a command on the host and returns its standard output; the error contains its standard error.
func (h *LabHost) Exec(ctx context.Context, name string, args ...string) (string, error) {
	cmd := h.Command(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w: %s", h.name, name, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}

// Start starts the command on its host.
func (c *Cmd) Start() error {
	pid, err := c.host.runningPID()
	if err != nil {
		return err
	}
	return enter(pid, hostNamespaces, c.Cmd.Start)
}

// Run starts the command and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("standard output is already set")
	}
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard error.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stderr != nil {
		return nil, errors.New("standard error is already set")
	}
	var out bytes.Buffer
	c.Stderr = &out
	if c.Stdout != nil {
		return nil, errors.New("standard output is already set")
	}
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}
