package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// external runs each session with the system's ssh, or a program of the user's, in place of the built-in client. It authenticates,
// so nothing is known about the host until a session starts.
type external struct {
	client *Client
	server string // as far as ssh_config determines it
	door   string // the first machine on the way to it
	plain  bool   // OpenSSH connects directly to the host and prints its errors
	argv   []string
	byHand string          // a shorter command, for the user
	ctx    context.Context // lasts as long as the Conn
	cancel context.CancelFunc
}

// bySystem has OpenSSH's client log in to a host that gorun's own cannot, with the same options on bastions as on the host.
func (c *Client) bySystem(ctx context.Context, s *settings, route []string) error {
	proxy := ""
	for i, hop := range route {
		bastion, err := c.settingsFor(ctx, hop, true)
		if err != nil {
			return err
		}
		s.door = cmp.Or(s.door, bastion.addr())
		bastion.command = bastion.openSSH(proxy, i)
		user, _, port, _ := splitHost(hop)
		proxy = ""
		for _, word := range c.arguments(bastion, user, port) {
			proxy += strings.ReplaceAll(quoted(word), "%", "%%") + " "
		}
		proxy += "-W '[%h]:%p'"
	}
	s.command = s.openSSH(proxy, len(route))
	return nil
}

// quoted returns a word as shells read it, without backslashes, which ssh_config takes for more than shells do.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
}

// openSSH is OpenSSH's client for one machine, behind so many bastions. It may accept the keys that gorun would, asks for no
// password, reports how it ends, and obeys no keyword that is of no effect on what gorun does.
func (s *settings) openSSH(proxy string, bastions int) []string {
	unknown := strings.Replace(s.values.first("stricthostkeychecking"), "ask", "yes", 1) // no one is asked
	limit := time.Duration(bastions+1) * s.timeout                                       // the logins of bastions come first
	argv := []string{"ssh", "-T", "-a", "-x", "-o", "RemoteCommand=none", "-o", "LogLevel=INFO", "-o", "StrictHostKeyChecking=" + unknown,
		"-o", "PasswordAuthentication=no", "-o", "KbdInteractiveAuthentication=no", "-o", fmt.Sprintf("ConnectTimeout=%d", max(1, limit/time.Second))}
	if proxy != "" {
		argv = append(argv, "-o", "ProxyCommand="+proxy, "-o", "ProxyUseFdpass=no") // as ssh has it for ProxyJump
	}
	for option := range strings.FieldsSeq(`ClearAllForwardings=yes ControlMaster=no ControlPath=none PermitLocalCommand=no Tunnel=no StdinNull=no
		ForkAfterAuthentication=no SessionType=default ChannelTimeout=none AddKeysToAgent=no UpdateHostKeys=no VisualHostKey=no`) {
		keyword, _, _ := strings.Cut(option, "=")
		if s.values[strings.ToLower(keyword)] != nil { // older clients do not have all of them
			argv = append(argv, "-o", option)
		}
	}
	return argv
}

// arguments are those of ssh(1) for one machine, with the flags. ssh_config is left to the program.
func (c *Client) arguments(s *settings, user string, port int) []string {
	argv := slices.Clone(s.command)
	if c.cfg.ConfigFile != "" {
		argv = append(argv, "-F", c.cfg.expandHome(c.cfg.ConfigFile))
	}
	if port != 0 {
		argv = append(argv, "-p", strconv.Itoa(port))
	}
	for _, f := range c.cfg.IdentityFiles {
		argv = append(argv, "-i", c.cfg.expandHome(f))
	}
	if s.command[0] == "ssh" && cmp.Or(s.values.first("serveraliveinterval"), "0") == "0" { // the system's
		argv = append(argv, "-o", "ServerAliveInterval=5") // or it would not notice a lost connection
	}
	if user != "" {
		user += "@"
	}
	return append(argv, user+s.alias)
}

func (c *Client) external(s *settings) external {
	user, _, _, _ := splitHost(s.host)
	argv := c.arguments(s, cmp.Or(user, c.cfg.User), c.cfg.Port)
	hand := slices.Clone(argv)
	if s.system != nil {
		hand = append([]string{"ssh"}, argv[len(s.command):]...)
	}
	for i, word := range hand {
		hand[i] = quoted(word)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return external{client: c, server: s.addr(), door: cmp.Or(s.door, s.addr()), plain: c.direct(s), argv: argv, byHand: strings.Join(hand, " "), ctx: ctx, cancel: cancel}
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
	said = acceptedKey.ReplaceAllString(said, "")
	return e.plain && (strings.TrimSpace(said) == "" || closedByHost(said))
}

// acceptedKey is OpenSSH's message about the key of a host that it did not know.
var acceptedKey = regexp.MustCompile(`(?m)^Warning: Permanently added .*$`)

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

// refusal returns the step at which a machine refuses a login by OpenSSH's message, "" for other messages.
func refusal(line string) Step {
	switch {
	case strings.Contains(line, "Host key verification failed"):
		return StepHostKey
	case strings.Contains(line, "Permission denied ("), strings.Contains(line, "Too many authentication failures"):
		return StepAuthenticate
	}
	return ""
}

// decisive returns the first line that says why OpenSSH did not get in, "" if none does. The ssh of a bastion says it before that of the
// host finds its connection closed.
func decisive(said string) string {
	for line := range strings.Lines(said) {
		if refusal(line) != "" || unreached(line) != nil {
			return oneLine(line)
		}
	}
	return ""
}

// unreached returns why OpenSSH did not reach an sshd, nil for other messages.
func unreached(line string) error {
	for text, cause := range opensshSays {
		if strings.HasPrefix(line, "ssh: ") && strings.Contains(line, text) {
			return cause
		}
	}
	return nil
}

// brokenOff recognizes OpenSSH's messages for a broken connection.
func brokenOff(said string) bool {
	return strings.Contains(said, ": Connection reset by peer") || strings.HasPrefix(said, "Connection reset by ") || strings.HasPrefix(said, "Timeout, server ")
}

// blame interprets OpenSSH's messages. It returns the step and hint they imply, and ErrBroken as the cause if the
// connection broke; nil for other messages.
func (e external) blame(said string) *Error {
	if cause := unreached(said); cause != nil {
		return dialError(e.server, cause)
	}
	failed := &Error{Step: refusal(said), Hint: "try it by hand: " + e.byHand + " true"}
	switch {
	case failed.Step != "":
	case wasDropped(said), strings.Contains(said, " timed out during banner exchange"),
		strings.HasPrefix(said, "Connection to ") && strings.HasSuffix(said, " timed out"):
		failed.Step = StepHandshake
	case closedByHost(said), brokenOff(said):
		failed.Err, failed.Hint = ErrBroken, "" // the host was up a moment ago
	default:
		return nil
	}
	return failed
}
