package ssh

import (
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

// external runs each session with a program of the user's in place of the built-in client. It authenticates by itself,
// so nothing is known about the host until a session starts.
type external struct {
	client *Client
	server string // as far as ssh_config says it
	plain  bool   // OpenSSH goes straight to the host, and says what happens
	argv   []string
	ctx    context.Context // the life of the Conn
	cancel context.CancelFunc
}

// external puts the flags into the arguments of ssh(1). What ssh_config says is left to the program.
func (c *Client) external(s *settings) external {
	argv := append([]string{}, c.cfg.Command...)
	if c.cfg.ConfigFile != "" {
		argv = append(argv, "-F", c.cfg.expandHome(c.cfg.ConfigFile))
	}
	if c.cfg.Port != 0 {
		argv = append(argv, "-p", strconv.Itoa(c.cfg.Port))
	}
	for _, f := range c.cfg.IdentityFiles {
		argv = append(argv, "-i", c.cfg.expandHome(f))
	}
	if c.cfg.Command[0] == "ssh" && c.ssh.first(s.alias, "ServerAliveInterval") == "" { // the system's
		argv = append(argv, "-o", "ServerAliveInterval=5") // or it would not notice that the way is lost
	}
	target := s.alias
	if user, _, _, _ := splitHost(s.host); user != "" {
		target = user + "@" + target
	} else if c.cfg.User != "" {
		target = c.cfg.User + "@" + target
	}
	ctx, cancel := context.WithCancel(context.Background())
	return external{client: c, server: s.addr(), plain: c.plainly(s), argv: append(argv, target), ctx: ctx, cancel: cancel}
}

// plainly is true if OpenSSH's client goes straight to a host, and is not told to be quiet. What a script of the user's does, nobody
// knows.
func (c *Client) plainly(s *settings) bool {
	return filepath.Base(c.cfg.Command[0]) == "ssh" && len(s.jumps) == 0 && s.proxyCommand == "" && c.ssh.first(s.alias, "LogLevel") == "" &&
		!slices.ContainsFunc(c.cfg.Command[1:], func(arg string) bool {
			small := strings.ToLower(arg)
			return strings.HasPrefix(arg, "-J") || strings.HasPrefix(arg, "-F") || strings.HasPrefix(arg, "-q") ||
				strings.Contains(small, "proxy") || strings.Contains(small, "loglevel")
		})
}

// hungUp knows how OpenSSH ends when the host has: without a word if the host came to say that the command was killed.
func (e external) hungUp(said string) bool {
	return e.plain && (strings.TrimSpace(said) == "" || closedByHost(said))
}

// closedByHost knows how OpenSSH says that the other end has ended the connection in order. What Linux calls a broken pipe is the
// reset, because something was sent in the same moment, of a connection that the other side had ended before; other resets have
// another name.
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
	// It stays in the terminal's foreground, so that it may ask for a password, but keys that are typed there are for the
	// launcher, which ends or stops the ranks by this very session. OpenSSH leaves alone what is ignored when it starts.
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
	ended, err := startBound(cmd)
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
			return -1, fmt.Errorf("%s: %w", e.argv[0], err) // ssh's own failures end with 255
		default:
			return -1, err
		}
	}
	return &Session{Stdin: in, Stdout: out, Stderr: stderr, wait: wait, blame: e.blame}, nil
}

// opensshSays is how OpenSSH says that it did not come as far as the host's sshd.
var opensshSays = map[string]error{
	"ssh: Could not resolve hostname ": &net.DNSError{},
	": Connection refused":             syscall.ECONNREFUSED,
	": Connection timed out":           context.DeadlineExceeded,
	": Operation timed out":            context.DeadlineExceeded, // of macOS
	": No route to host":               syscall.EHOSTUNREACH,
	": Network is unreachable":         syscall.ENETUNREACH,
}

// brokenOff knows how OpenSSH says that a connection broke.
func brokenOff(said string) bool {
	return strings.Contains(said, ": Connection reset by peer") || strings.HasPrefix(said, "Connection reset by ") || strings.HasPrefix(said, "Timeout, server ")
}

// blame knows the words of OpenSSH, and returns the step, if they name it, the hint, and ErrBroken as the cause if the connection broke; nil
// for other words.
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
		failed.Err, failed.Hint = ErrBroken, "" // it was there a moment ago
	default:
		return nil
	}
	return failed
}
