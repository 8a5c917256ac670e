package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"gorun/launcher/dial"
	"gorun/launcher/hosts"
	"gorun/launcher/output"
	"gorun/launcher/shellwords"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
	"gorun/worker/command"
)

// sshTable binds the flags for how hosts are reached.
func (o *jobFlags) sshTable() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "ssh-port", Destination: &o.sshPort, Aliases: []string{"p"},
			Usage: "`PORT` of sshd on the hosts", DefaultText: "as in ssh config, 22"},
		&cli.StringSliceFlag{Name: "ssh-identity-file", Destination: &o.identityFiles, Aliases: []string{"i"},
			Usage: "log in with the private key in `FILE`; may be given more than once"},
		&cli.StringFlag{Name: "ssh-config", Destination: &o.sshConfig,
			Usage: "read `FILE` instead of ~/.ssh/config; none for no file"},
		&cli.StringFlag{Name: "ssh-command", Destination: &o.sshCommand, Aliases: []string{"launcher-exec", "bootstrap-exec"}, EnvVars: []string{"GORUN_SSH_COMMAND"},
			Usage: "reach hosts by `COMMAND`, such as 'ssh -K', instead of gorun's own ssh: for Kerberos, hardware keys, passwords"},
		timeFlag("connect-retry", &o.connectRetry, 0, "keep trying for this `TIME` while a host's name is unknown, a host does not answer, or a cluster is too small"),
	}
}

// launcherTable binds the flag for what takes the place of ssh.
func (o *jobFlags) launcherTable() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "launcher", Destination: &o.launcher, Aliases: []string{"bootstrap"}, EnvVars: []string{"GORUN_LAUNCHER"},
			Usage: "start daemons on hosts by `WAY`: auto, ssh, srun, pbsdsh, blaunch, qrsh, or a command line with {host} that ends with {program}", DefaultText: "srun in an allocation of Slurm, else ssh"},
	}
}

// dialer starts a daemon as a child for this machine's own names, and by ssh or a scheduler's command for all others.
// A scheduler's command starts it on all hosts, so that all ranks are in one step.
type dialer struct {
	local  dial.Local
	remote *dial.Remote
	ssh    *dial.SSH
	steps  *dial.Steps // nil for ssh
	retry  retry
	own    func(ctx context.Context, host string) bool
	voice  *voice
}

// voice is how the ssh client talks to the user.
type voice struct {
	note  func(format string, args ...any)
	pause func() (resume func()) // hides the status line while a question is open
}

// speakThrough lets the ssh client print between the lines of a job.
func (d *dialer) speakThrough(m *output.Mux) { d.voice.note, d.voice.pause = m.Note, m.Pause }

func (d dialer) Dial(ctx context.Context, host string) (*talk.Daemon, error) {
	if d.steps == nil && d.own(ctx, host) {
		return d.local.Dial(ctx, host)
	}
	return d.retry.dial(ctx, host, d.remote.Dial)
}

// close ends what started the daemons, once they have ended.
func (d dialer) close() {
	if d.steps != nil {
		d.steps.Close()
	}
}

// doing returns a dialer that starts another command in place of a daemon, which needs no cleaning up.
func (d *dialer) doing(args ...string) talk.Dialer {
	other, remote := *d, *d.remote
	other.local.Patience = 0
	other.local.Args, remote.Args, remote.Once = args, args, true
	other.remote = &remote
	return other
}

func newDialer(o *jobFlags) (*dialer, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	home, _ := os.UserHomeDir()
	var localUser string
	if u, err := user.Current(); err == nil {
		localUser, home = u.Username, u.HomeDir // as ssh, whatever HOME says
	}
	command, err := sshCommand(o)
	if err != nil {
		return nil, err
	}
	way, err := wayToHosts(o)
	if err != nil {
		return nil, err
	}
	binary := dial.ReadBinary(exe, platform())
	start := workerArgs(o)
	if hostProgram != nil && (len(start) == 1 || runtime.GOOS != "linux") { // this program also has a daemon for RDMA
		binary = dial.HoldBinary(hostProgram, platform())
	}
	voice := &voice{
		note:  func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
		pause: func() func() { return func() {} },
	}
	client, err := ssh.New(ssh.Config{
		Home:          home,
		ConfigFile:    o.sshConfig,
		Port:          o.sshPort,
		IdentityFiles: o.identityFiles.Value(),
		Agent:         os.Getenv("SSH_AUTH_SOCK"),
		LookupEnv:     os.LookupEnv,
		LocalUser:     localUser,
		Prompt: func(ctx context.Context, question string) (string, error) {
			defer voice.pause()()
			return prompt(ctx, question)
		},
		Command: command,
		Verbose: o.Verbose,
		Log:     slog.New(slog.DiscardHandler),
		Note:    func(host, text string) { voice.note("gorun: %s: %s", host, text) },
	})
	if err != nil {
		return nil, &usageError{err, "--ssh-config none reads no file"}
	}
	d := &dialer{
		local:  dial.Local{Exe: exe, Args: start, Env: localEnv(o), Patience: o.Grace + 10*time.Second},
		ssh:    &dial.SSH{Client: client, Binary: binary},
		remote: &dial.Remote{Args: start, TimeScale: timeScaleOf(os.Getenv(timeScale))},
		retry:  newRetry(o),
		own:    ownNames(),
		voice:  voice,
	}
	d.remote.By = d.ssh
	if way.Runs() {
		d.steps = way.steps(o, exe, binary)
		d.remote.By = d.steps
	}
	return d, nil
}

// workerArgs are the arguments that make a program a worker.
func workerArgs(o *jobFlags) []string {
	if o.RDMA == "" || o.RDMA == "off" {
		return []string{"worker"}
	}
	return []string{"worker", command.WithRDMA + "=" + o.Verbs}
}

// sshCommand is the program that takes the place of gorun's own ssh, nil for none.
func sshCommand(o *jobFlags) ([]string, error) {
	said := o.sshCommand
	o.mca.each(func(key, value string) {
		if said == "" && isAgent(key) {
			said, _, _ = strings.Cut(value, " : ") // Open MPI's list of agents; the first one will do
		}
	})
	words, err := shellwords.Split(said)
	if err == nil && len(words) > 0 {
		_, err = exec.LookPath(words[0])
	}
	if err != nil {
		return nil, &usageError{fmt.Errorf("--ssh-command: %w", err), "--ssh-command 'ssh -K'"}
	}
	return words, nil
}

// hostArch is the GOARCH of hostProgram. The linker sets it if this binary has another one: a launcher on macOS brings
// hosts a program for Linux.
var hostArch = runtime.GOARCH

// platform is what uname -sm prints on a host that can run what hosts get.
func platform() string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[hostArch]
	if arch == "" || runtime.GOOS != "linux" && hostProgram == nil {
		return ""
	}
	return "Linux " + arch
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

// checkStart is checkFlags for commands that only ask hosts.
func checkStart(o *jobFlags) error {
	if patience := o.startTimeout; patience <= 0 {
		return &usageError{fmt.Errorf("--start-timeout %v: must be positive", patience), "--start-timeout 60, in seconds"}
	}
	for _, nic := range nicsOf(o) {
		if _, err := netip.ParsePrefix(nic); err != nil && strings.Contains(nic, "/") { // no interface or driver has one in its name
			return &usageError{fmt.Errorf("--network-interfaces %s: not a network", nic), "--network-interfaces eth0,10.0.0.0/8"}
		}
	}
	return nil
}

// startTimeout limits a start. In an MPIJob the workers may only now be made.
func startTimeout(o *jobFlags) time.Duration {
	if !o.given(&o.startTimeout) && hosts.InMPIJob(surroundings()) {
		return mpiJobPatience + o.startTimeout
	}
	return o.startTimeout
}
