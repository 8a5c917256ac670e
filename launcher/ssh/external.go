package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// external runs each session with the system's ssh, or a program of the user's, in place of the built-in client. It authenticates,
// so nothing is known about the host until a session starts.
type external struct {
	client *Client
	server string // as far as ssh_config determines it
	plain  bool   // OpenSSH connects directly to the host and prints its errors
	argv   []string
	ctx    context.Context // lasts as long as the Conn
	cancel context.CancelFunc
}

// external turns the flags into arguments of ssh(1). ssh_config is left to the program.
func (c *Client) external(s *settings) external {
	argv := slices.Clone(s.command)
	if c.cfg.ConfigFile != "" {
		argv = append(argv, "-F", c.cfg.expandHome(c.cfg.ConfigFile))
	}
	if c.cfg.Port != 0 {
		argv = append(argv, "-p", strconv.Itoa(c.cfg.Port))
	}
	for _, f := range c.cfg.IdentityFiles {
		argv = append(argv, "-i", c.cfg.expandHome(f))
	}
	if s.command[0] == "ssh" && cmp.Or(s.values.first("serveraliveinterval"), "0") == "0" { // the system's
		argv = append(argv, "-o", "ServerAliveInterval=5") // or it would not notice a lost connection
	}
	target := s.alias
	if user, _, _, _ := splitHost(s.host); user != "" {
		target = user + "@" + target
	} else if c.cfg.User != "" {
		target = c.cfg.User + "@" + target
	}
	ctx, cancel := context.WithCancel(context.Background())
	return external{client: c, server: s.addr(), plain: c.direct(s), argv: append(argv, target), ctx: ctx, cancel: cancel}
}

// direct reports whether OpenSSH's client connects directly to a host and is not silenced. Nothing is known about a
// script of the user's.
func (c *Client) direct(s *settings) bool {
	return filepath.Base(s.command[0]) == "ssh" && len(s.jumps) == 0 && s.proxyCommand == "" &&
		(len(c.cfg.Command) == 0 || cmp.Or(s.values.first("loglevel"), "INFO") == "INFO") &&
		!slices.ContainsFunc(c.cfg.Command, func(arg string) bool {
			small := strings.ToLower(arg)
			return strings.HasPrefix(arg, "-J") || strings.HasPrefix(arg, "-F") || strings.HasPrefix(arg, "-q") ||
				strings.Contains(small, "proxy") || strings.Contains(small, "loglevel")
		})
}

// hungUp recognizes how OpenSSH ends after the host has: with no message if the host reported that the command was
// killed.
func (e external) hungUp(said string) bool {
	return e.plain && (strings.TrimSpace(said) == "" || closedByHost(said))
}

// closedByHost recognizes OpenSSH's messages for a connection that the other end closed in order. "Broken pipe" is
// Linux's name for a reset on a connection that the other side had closed before, because something was sent at that
// moment; other resets have another name.
func closedByHost(said string) bool {
	return strings.Contains(said, " closed by remote host.") || strings.Contains(said, "client_loop: send disconnect: Broken pipe") ||
		strings.Contains(said, "Connection closed by ")
}

func (e external) close() error {
	e.cancel()
	return nil
}

// run starts the program.
func (e external) run(command string) (*Session, error) {
	// The program stays in the terminal's foreground, so that it may ask for a password. But keys typed there are for
	// the launcher, which ends or stops the ranks through this very session. OpenSSH keeps ignoring signals that are
	// ignored when it starts.
	cmd := exec.CommandContext(e.ctx, "/bin/sh", slices.Concat([]string{"-c", `trap "" INT QUIT TSTP; exec "$@"`, "sh"}, e.argv, []string{command})...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	ended, err := StartBound(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", e.argv[0], err)
	}
	wait := func() (int, error) {
		var exit *exec.ExitError
		switch err := ended(); {
		case err == nil:
			return 0, nil
		case errors.As(err, &exit) && exit.Exited() && exit.ExitCode() != 255:
			return exit.ExitCode(), nil
		case errors.As(err, &exit):
			return -1, fmt.Errorf("%s: %w", e.argv[0], err) // ssh's own failures exit with 255
		default:
			return -1, err
		}
	}
	return &Session{Stdin: in, Stdout: out, Stderr: stderr, wait: wait, blame: e.blame}, nil
}

// opensshSays lists OpenSSH's messages for not reaching the host's sshd.
var opensshSays = map[string]error{
	"ssh: Could not resolve hostname ": &net.DNSError{},
	": Connection refused":             syscall.ECONNREFUSED,
	": Connection timed out":           context.DeadlineExceeded,
	": Operation timed out":            context.DeadlineExceeded, // on macOS
	": No route to host":               syscall.EHOSTUNREACH,
	": Network is unreachable":         syscall.ENETUNREACH,
}

// brokenOff recognizes OpenSSH's messages for a broken connection.
func brokenOff(said string) bool {
	return strings.Contains(said, ": Connection reset by peer") || strings.HasPrefix(said, "Connection reset by ") || strings.HasPrefix(said, "Timeout, server ")
}

// blame interprets OpenSSH's messages. It returns the step and hint they imply, and ErrBroken as the cause if the
// connection broke; nil for other messages.
func (e external) blame(said string) *Error {
	for text, cause := range opensshSays {
		if strings.HasPrefix(said, "ssh: ") && strings.Contains(said, text) {
			return dialError(e.server, cause)
		}
	}
	failed := &Error{Hint: "try it by hand: " + strings.Join(e.argv, " ") + " true"}
	switch {
	case wasDropped(said):
		failed.Step = StepHandshake
	case strings.Contains(said, "Host key verification failed"):
		failed.Step = StepHostKey
	case strings.Contains(said, "Permission denied ("), strings.Contains(said, "Too many authentication failures"):
		failed.Step = StepAuthenticate
	case closedByHost(said), brokenOff(said):
		failed.Err, failed.Hint = ErrBroken, "" // the host was up a moment ago
	default:
		return nil
	}
	return failed
}
