package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"gorun/launcher"
	"gorun/launcher/plan"
	"gorun/launcher/ssh"
)

// connectFlags say how hosts are reached.
func connectFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.IntFlag{Name: "ssh-port", Aliases: []string{"p"}, Usage: "`PORT` of sshd on the hosts", DefaultText: "as in ssh config, 22"},
		&cli.StringSliceFlag{Name: "ssh-identity-file", Aliases: []string{"i"}, Usage: "private key `FILE` for ssh, may be given more than once"},
		&cli.StringFlag{Name: "ssh-config", Usage: "read `FILE` instead of ~/.ssh/config; none for no file"},
		timeFlag("connect-retry", 0, "go on for this `TIME` when a host's name is not known yet or nobody answers there"),
	}, clusterFlags()...)
}

// dialer starts a daemon as a child for this machine's own names and over ssh for all others.
type dialer struct {
	local  launcher.Local
	remote *launcher.SSH
	retry  retry
	own    func(ctx context.Context, host string) bool
}

func (d dialer) Dial(ctx context.Context, host string) (*launcher.Daemon, error) {
	if d.own(ctx, host) {
		return d.local.Dial(ctx, host)
	}
	return d.retry.dial(ctx, host, d.remote.Dial)
}

func newDialer(c *cli.Context) (*dialer, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	home, _ := os.UserHomeDir() // $HOME decides
	var localUser string
	if u, err := user.Current(); err == nil {
		localUser, home = u.Username, cmp.Or(home, u.HomeDir)
	}
	client, err := ssh.New(ssh.Config{
		Home:           home,
		ConfigFile:     c.String("ssh-config"),
		Port:           c.Int("ssh-port"),
		IdentityFiles:  c.StringSlice("ssh-identity-file"),
		Agent:          os.Getenv("SSH_AUTH_SOCK"),
		LocalUser:      localUser,
		Prompt:         prompt,
		ConnectTimeout: 10 * time.Second,
		Log:            slog.New(slog.DiscardHandler),
		Note:           func(host, text string) { fmt.Fprintf(os.Stderr, "gorun: %s: %s\n", host, text) },
	})
	if err != nil {
		return nil, &usageError{err, "--ssh-config none reads no file"}
	}
	return &dialer{
		local:  launcher.Local{Exe: exe, Args: []string{"worker"}, Env: localEnv(c), Patience: timeOf(c, "grace") + 10*time.Second},
		remote: &launcher.SSH{Client: client, Binary: launcher.ReadBinary(exe, platform()), Args: []string{"worker"}},
		retry:  newRetry(c),
		own:    ownNames(),
	}, nil
}

// localEnv is the environment of a daemon on this machine, of which its ranks inherit: so it is filtered as
// theirs is.
func localEnv(c *cli.Context) []string {
	env := plan.UserEnv(os.Environ(), false)
	if !c.Bool("env-none") {
		return env
	}
	keep := []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"} // what a login would have given it
	return slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(keep, name)
	})
}

// platform is what uname -sm prints on a host that can run this very binary.
func platform() string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if runtime.GOOS != "linux" || arch == "" {
		return ""
	}
	return "Linux " + arch
}

// ownNames tells whether a name of the host list is this machine.
func ownNames() func(ctx context.Context, host string) bool {
	name, _ := os.Hostname()
	short, _, _ := strings.Cut(name, ".")
	var own []netip.Addr
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr())
		}
	}
	isOwn := func(s string) bool {
		a, err := netip.ParseAddr(s)
		return err == nil && (a.IsLoopback() || slices.Contains(own, a.Unmap()))
	}
	return func(ctx context.Context, host string) bool {
		if strings.Contains(host, "@") { // a named user wants a login
			return false
		}
		if host == "localhost" || name != "" && (host == name || host == short) || isOwn(host) {
			return true
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		found, err := net.DefaultResolver.LookupHost(ctx, host)
		return err == nil && slices.ContainsFunc(found, isOwn)
	}
}

// prompt asks for a secret, such as the passphrase of a key, without echo.
func prompt(ctx context.Context, question string) (string, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", errors.New("no terminal to ask at")
	}
	defer tty.Close()
	defer context.AfterFunc(ctx, func() { tty.Close() })()
	fmt.Fprint(tty, "gorun: ", question, " ")
	defer fmt.Fprintln(tty)
	secret, err := term.ReadPassword(int(tty.Fd()))
	return string(secret), err
}
