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
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"gorun/launcher"
	"gorun/launcher/hosts"
	"gorun/launcher/output"
	"gorun/launcher/plan"
	"gorun/launcher/ssh"
	"gorun/rendezvous/wire"
)

func launchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "np", Aliases: []string{"n", "num-proc"}, Usage: "start `N` ranks", DefaultText: "one for every slot"},
		&cli.StringFlag{Name: "hosts", Aliases: []string{"H", "host"}, Usage: "`LIST` of hosts and their slots: host1:2,user@host2:4,node[01-16]:8", DefaultText: "this machine"},
		&cli.PathFlag{Name: "hostfile", Aliases: []string{"machinefile"}, Usage: "read the hosts from `FILE`, a line each: host slots=N, or host:N"},
		&cli.IntFlag{Name: "ssh-port", Aliases: []string{"p"}, Usage: "`PORT` of sshd on the hosts", DefaultText: "as in ssh config, 22"},
		&cli.StringSliceFlag{Name: "ssh-identity-file", Aliases: []string{"i"}, Usage: "private key `FILE` for ssh, may be given more than once"},
		&cli.StringFlag{Name: "ssh-config", Usage: "read `FILE` instead of ~/.ssh/config; none for no file"},
		&cli.DurationFlag{Name: "start-timeout", Value: time.Minute, Usage: "give up if the ranks do not run after this `TIME`"},
		&cli.DurationFlag{Name: "grace", Value: 3 * time.Second, Usage: "`TIME` between TERM and KILL when ranks are stopped"},
		&cli.PathFlag{Name: "wdir", Aliases: []string{"wd"}, Usage: "working `DIRECTORY` of the ranks", DefaultText: "this one"},
		&cli.PathFlag{Name: "output-filename", Usage: "also write each rank's output to `DIR`/rank.N/stdout and stderr"},
		&cli.BoolFlag{Name: "no-tag-output", Usage: "do not put [rank]<stdout>: before each line"},
		&cli.BoolFlag{Name: "prefix-output-with-timestamp", Aliases: []string{"timestamp-output", "prefix-timestamp"}, Usage: "put the time before each line"},
		&cli.BoolFlag{Name: "no-horovod-shim", Usage: "do not offer gorun's drop-in when the program imports horovod"},
		&cli.IntFlag{Name: "streams", Value: 4, Usage: "TCP connections between two hosts", Hidden: true},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell what happens: hosts, their NICs, the ring"},
		&cli.BoolFlag{Name: "version", Usage: "print the version"},
	}
}

// launch is the main job: gorun -np 4 -H host1:2,host2:2 python train.py
func launch(c *cli.Context, hurry <-chan struct{}) error {
	if c.Bool("version") {
		return printVersion(c)
	}
	argv := c.Args().Slice()
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return &usageError{errNoProgram, "gorun -np 4 -H host1:2,host2:2 python train.py"}
	}
	if strings.HasPrefix(argv[0], "-") {
		return &usageError{fmt.Errorf("unknown flag %s", argv[0]), "gorun --help lists the flags"}
	}
	return runJob(c, hurry, argv)
}

// runJob starts argv on the hosts that the flags name, and returns when all of it has ended.
func runJob(c *cli.Context, hurry <-chan struct{}, argv []string) error {
	if err := checkFlags(c); err != nil {
		return err
	}
	placement, err := place(c)
	if err != nil {
		return err
	}
	dir := c.Path("wdir")
	if dir, err = filepath.Abs(dir); err != nil { // "" is the current one
		return fmt.Errorf("find working directory: %w", err)
	}
	dialer, err := newDialer(c)
	if err != nil {
		return err
	}
	mux, err := newMux(c, len(placement.Ranks))
	if err != nil {
		return &usageError{err, "--output-filename names a directory, which is made if it is missing"}
	}
	// In the background of a terminal, reading is an error (and rank 0 sees the end of its input) instead
	// of a reason to stop the launcher.
	signal.Ignore(syscall.SIGTTIN)
	signals := make(chan int, 8)
	defer forwardSignals(signals)()

	spec := launcher.Spec{
		Placement:    placement,
		Argv:         argv,
		Env:          os.Environ(),
		Dir:          dir,
		Version:      version,
		Shim:         !c.Bool("no-horovod-shim"),
		Verbose:      c.Bool("verbose"),
		Streams:      c.Int("streams"),
		StartTimeout: c.Duration("start-timeout"),
		Grace:        c.Duration("grace"),
		Dial:         dialer,
		Stdin:        os.Stdin,
		Output:       ranksOutput{mux},
		Progress:     func(p launcher.Progress) { mux.Status(output.Start(p).String()) },
		Note:         mux.Note,
		Signals:      signals,
		Hurry:        hurry,
	}
	err = launcher.Run(c.Context, spec)
	// What ranks wrote is shown in full, unless the user no longer wants to wait for it.
	finish, cancel := context.WithCancel(context.WithoutCancel(c.Context))
	defer cancel()
	go func() {
		select {
		case <-hurry:
			mux.Abandon()
			cancel()
		case <-finish.Done():
		}
	}()
	return errors.Join(err, mux.Finish(finish))
}

// newMux makes what stands between the ranks and the user's terminal.
func newMux(c *cli.Context, ranks int) (*output.Mux, error) {
	cfg := output.Config{
		Ranks:     ranks,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		Tag:       output.HorovodTag,
		Timestamp: c.Bool("prefix-output-with-timestamp"),
		Status:    term.IsTerminal(int(os.Stderr.Fd())),
		Dir:       c.Path("output-filename"),
	}
	if term.IsTerminal(int(os.Stdout.Fd())) {
		cfg.Refresh = time.Second
	}
	if c.Bool("no-tag-output") {
		cfg.Tag = nil
	}
	return output.New(cfg)
}

// ranksOutput is the Mux in the launcher's words.
type ranksOutput struct{ *output.Mux }

func (o ranksOutput) Write(rank int, stream wire.Stream, data []byte) {
	o.Mux.Write(rank, output.Stream(stream), data)
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

// checkFlags finds mistakes before anything is contacted.
func checkFlags(c *cli.Context) error {
	wrong := func(name, why string) error {
		return &usageError{fmt.Errorf("--%s %v: %s", name, c.Value(name), why), ""}
	}
	switch {
	case c.Int("ssh-port") < 0 || c.Int("ssh-port") > 65535:
		return wrong("ssh-port", "not a port")
	case c.Int("streams") < 1 || c.Int("streams") > 64:
		return wrong("streams", "must be 1 to 64")
	case c.Duration("grace") < 0:
		return wrong("grace", "must not be negative")
	case c.Duration("start-timeout") <= 0:
		return wrong("start-timeout", "must be positive")
	}
	for _, key := range c.StringSlice("ssh-identity-file") {
		if _, err := os.Stat(key); err != nil {
			return &usageError{fmt.Errorf("--ssh-identity-file: %w", err), ""}
		}
	}
	return nil
}

// place reads -np, -H and --hostfile.
func place(c *cli.Context) (plan.Placement, error) {
	np := c.Int("np")
	if np < 0 || c.IsSet("np") && np == 0 {
		return plan.Placement{}, &usageError{fmt.Errorf("-np %d: must be at least 1", np), ""}
	}
	var (
		list []hosts.Host
		err  error
	)
	switch {
	case c.IsSet("hosts") && c.IsSet("hostfile"):
		return plan.Placement{}, &usageError{errors.New("-H and --hostfile exclude each other"), "name the hosts in one place"}
	case c.IsSet("hosts"):
		if list, err = hosts.ParseList(c.String("hosts")); err != nil {
			return plan.Placement{}, &usageError{err, "-H host1:2,host2:2"}
		}
	case c.IsSet("hostfile"):
		text, err := os.ReadFile(c.Path("hostfile"))
		if err != nil {
			return plan.Placement{}, &usageError{fmt.Errorf("read hostfile: %w", err), ""}
		}
		if list, err = hosts.ParseFile(string(text)); err != nil {
			return plan.Placement{}, &usageError{fmt.Errorf("%s: %w", c.Path("hostfile"), err), "each line is: host slots=N"}
		}
	default:
		if np > hosts.MaxSlots {
			return plan.Placement{}, &usageError{fmt.Errorf("-np %d: more than %d ranks on one host", np, hosts.MaxSlots), "name the hosts with -H"}
		}
		list = []hosts.Host{{Name: "localhost", Slots: max(np, 1)}}
	}
	return plan.Place(list, np)
}

// dialer starts a daemon as a child for this machine's own names and over ssh for all others.
type dialer struct {
	local  launcher.Local
	remote *launcher.SSH
	own    func(ctx context.Context, host string) bool
}

func (d dialer) Dial(ctx context.Context, host string) (*launcher.Daemon, error) {
	if d.own(ctx, host) {
		return d.local.Dial(ctx, host)
	}
	return d.remote.Dial(ctx, host)
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
		local:  launcher.Local{Exe: exe, Args: []string{"worker"}, Env: os.Environ(), Patience: c.Duration("grace") + 10*time.Second},
		remote: &launcher.SSH{Client: client, Binary: launcher.ReadBinary(exe, platform()), Args: []string{"worker"}},
		own:    ownNames(),
	}, nil
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

// forwardSignals passes on what users send to a launcher to reach the ranks.
func forwardSignals(to chan<- int) (stop func()) {
	return notify(func(s syscall.Signal) {
		select {
		case to <- int(s):
		default:
		}
	}, unix.SIGUSR1, unix.SIGUSR2)
}

// notify calls f for each of the given signals until stop is called.
func notify(f func(syscall.Signal), signals ...os.Signal) (stop func()) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, signals...)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-c:
				f(s.(syscall.Signal))
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(c); close(done) }
}
