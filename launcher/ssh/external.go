package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
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
	target := s.alias
	if user, _, _, _ := splitHost(s.host); user != "" {
		target = user + "@" + target
	} else if c.cfg.User != "" {
		target = c.cfg.User + "@" + target
	}
	ctx, cancel := context.WithCancel(context.Background())
	return external{client: c, server: s.addr(), argv: append(argv, target), ctx: ctx, cancel: cancel}
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

// blame knows the words of OpenSSH, of which only the step and the hint are returned; nil for what others say.
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
	default:
		return nil
	}
	return failed
}
