//go:build linux

// Command lab makes hosts out of this machine and lets people use them: see package lab.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/contrib/lab"
)

// stateDir holds one file for each lab that was made by this command.
const stateDir = "/run/gorun-lab"

func main() {
	if err := newApp().Run(os.Args); err != nil {
		var exit cli.ExitCoder
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "lab: error:", err)
		os.Exit(1)
	}
}

func newApp() *cli.App {
	return &cli.App{
		Name:  "lab",
		Usage: "make hosts out of this machine: an address, processes, a home and an sshd each",
		Description: "lab up 2, then lab run ssh host1, or lab run bin/gorun -H host1:2,host2:2 …, then lab down.\n" +
			"The Go module around the working directory is shared by all hosts.",
		HideHelpCommand: true,
		Flags:           []cli.Flag{&cli.StringFlag{Name: "name", Value: "lab", Usage: "`NAME` of the lab, if there is more than one"}},
		ExitErrHandler:  func(*cli.Context, error) {},
		Commands: []*cli.Command{
			{Name: "up", Usage: "make a lab with N hosts", ArgsUsage: "N", Action: up, Flags: []cli.Flag{
				&cli.StringSliceFlag{Name: "share", Usage: "`DIR` that all hosts see as well; may be given more than once"},
			}},
			{Name: "hold", Hidden: true, Action: hold, Flags: []cli.Flag{&cli.StringSliceFlag{Name: "share"}}},
			{Name: "down", Usage: "end the lab", Action: down, Flags: []cli.Flag{
				&cli.BoolFlag{Name: "all", Usage: "end all labs that were made with up"},
			}},
			{Name: "status", Usage: "show the labs, and what runs on their hosts", Action: status},
			{Name: "run", Usage: "run a command where ssh and gorun know the hosts", ArgsUsage: "COMMAND…", SkipFlagParsing: true, Action: run},
			{Name: "exec", Usage: "run a command on host K, without ssh", ArgsUsage: "K COMMAND…", SkipFlagParsing: true, Action: execOn},
			hostCommand("freeze", "stun host K: its processes stop and its network is silent", (*lab.LabHost).Freeze),
			hostCommand("thaw", "let host K go on", (*lab.LabHost).Thaw),
			hostCommand("cut", "take the link of host K down", (*lab.LabHost).Cut),
			hostCommand("heal", "take the link of host K up", (*lab.LabHost).Heal),
			hostCommand("kill", "kill the first process of host K, and so all others", (*lab.LabHost).Kill),
			hostCommand("poweroff", "cut host K off, then kill it", (*lab.LabHost).PowerOff),
			{Name: "link", Usage: "set how good the link of host K is; without flags, perfect", ArgsUsage: "K", Action: link, Flags: []cli.Flag{
				&cli.Float64Flag{Name: "mbit", Usage: "limit it to `RATE` Mbit/s each way"},
				&cli.DurationFlag{Name: "delay", Usage: "add `TIME` to each packet, each way"},
				&cli.Float64Flag{Name: "loss", Usage: "lose this `SHARE` of packets, 0 to 1"},
			}},
		},
	}
}

// statePath is the file that describes a lab.
func statePath(name string) string { return filepath.Join(stateDir, name+".json") }

// up starts a process that holds the lab, and waits until the hosts are up.
func up(c *cli.Context) error {
	if err := lab.Check(); err != nil {
		return err
	}
	name := c.String("name")
	if name == "" || strings.ContainsAny(name, "/.") {
		return fmt.Errorf("%q is no name for a lab", name)
	}
	if l, err := attach(name); err == nil {
		return fmt.Errorf("lab %s is up with %d hosts; lab down ends it", name, len(l.Hosts()))
	}
	started := time.Now()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	told, say, err := os.Pipe()
	if err != nil {
		return err
	}
	defer told.Close()
	defer say.Close()
	args := []string{"--name", name, "hold"}
	for _, dir := range c.StringSlice("share") {
		args = append(args, "--share", dir)
	}
	keeper := exec.Command(self, append(args, c.Args().First())...)
	keeper.ExtraFiles = []*os.File{say}
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := keeper.Start(); err != nil {
		return err
	}
	say.Close()
	line, err := bufio.NewReader(told).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the process that holds the lab ended: %w", errors.Join(err, keeper.Wait()))
	}
	if line != "up\n" {
		keeper.Wait()
		return errors.New(strings.TrimSpace(line))
	}
	l, err := attach(name)
	if err != nil {
		return err
	}
	for _, h := range l.Hosts() {
		fmt.Printf("%s %s\n", h.Name(), h.Address())
	}
	fmt.Printf("up in %v; lab run COMMAND, lab status, lab down\n", time.Since(started).Round(10*time.Millisecond))
	return nil
}

// hold makes a lab and keeps it until it gets a signal to end. It reports on file descriptor 3 in one line.
func hold(c *cli.Context) error {
	say := os.NewFile(3, "report")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := holdLab(ctx, c, say); err != nil {
		fmt.Fprintln(say, strings.ReplaceAll(err.Error(), "\n", "; "))
		return err
	}
	return nil
}

func holdLab(ctx context.Context, c *cli.Context, say *os.File) error {
	hosts, err := strconv.Atoi(c.Args().First())
	if err != nil {
		return errors.New("how many hosts? lab up 2")
	}
	l, err := lab.New(ctx, hosts, lab.Options{Share: c.StringSlice("share")})
	if err != nil {
		return err
	}
	defer l.Close()
	text, err := json.MarshalIndent(l.State(), "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	path := statePath(c.String("name"))
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	fmt.Fprintln(say, "up")
	say.Close()
	<-ctx.Done()
	return nil
}

func readState(name string) (lab.State, error) {
	var s lab.State
	text, err := os.ReadFile(statePath(name))
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("there is no lab called %s; lab up 2 makes one", name)
	}
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

func attach(name string) (*lab.Lab, error) {
	s, err := readState(name)
	if err != nil {
		return nil, err
	}
	return lab.Attach(s)
}

// names returns all labs that have a file, alive or not.
func names() []string {
	paths, _ := filepath.Glob(statePath("*")) // the pattern is good
	for i, path := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(path), ".json")
	}
	return paths
}

func down(c *cli.Context) error {
	which := []string{c.String("name")}
	if c.Bool("all") {
		which = names()
	}
	for _, name := range which {
		if err := end(name); err != nil {
			return err
		}
	}
	return nil
}

// end makes the process that holds a lab end it; a file without such a process is only removed.
func end(name string) error {
	s, err := readState(name)
	if err != nil {
		return err
	}
	if s.Owner.Alive() {
		if err := syscall.Kill(s.Owner.PID, syscall.SIGTERM); err != nil {
			return fmt.Errorf("end lab %s: %w", name, err)
		}
	}
	for deadline := time.Now().Add(15 * time.Second); s.Owner.Alive() || s.Rack.Alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("end lab %s: process %d still holds it", name, s.Owner.PID)
		}
	}
	if err := os.Remove(statePath(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func status(c *cli.Context) error {
	labs := names()
	if c.IsSet("name") {
		labs = []string{c.String("name")}
	}
	for _, name := range labs {
		l, err := attach(name)
		if err != nil {
			fmt.Printf("%s: gone; lab --name %s down removes its file\n", name, name)
			continue
		}
		fmt.Printf("%s: %d hosts\n", name, len(l.Hosts()))
		for _, h := range append(l.Hosts(), l.Launcher()) {
			if !h.Running() {
				fmt.Printf("  %s off\n", h.Name())
				continue
			}
			fmt.Printf("  %s %s\n", h.Name(), h.Address())
			for _, left := range h.Leftovers() {
				fmt.Println("   ", left)
			}
		}
	}
	return nil
}

// hostNumber finds the host that the first argument names, K or hostK.
func hostNumber(c *cli.Context) (*lab.LabHost, error) {
	l, err := attach(c.String("name"))
	if err != nil {
		return nil, err
	}
	k, err := strconv.Atoi(strings.TrimPrefix(c.Args().First(), "host"))
	if err != nil || k < 1 || k > len(l.Hosts()) {
		return nil, fmt.Errorf("which host? one of 1 to %d, not %q", len(l.Hosts()), c.Args().First())
	}
	return l.Host(k), nil
}

func hostCommand(name, usage string, do func(*lab.LabHost) error) *cli.Command {
	return &cli.Command{Name: name, Usage: usage, ArgsUsage: "K", Action: func(c *cli.Context) error {
		h, err := hostNumber(c)
		if err != nil {
			return err
		}
		return do(h)
	}}
}

func link(c *cli.Context) error {
	h, err := hostNumber(c)
	if err != nil {
		return err
	}
	return h.SetLink(lab.Link{Rate: int64(c.Float64("mbit") * 1e6), Delay: c.Duration("delay"), Loss: c.Float64("loss")})
}

func run(c *cli.Context) error {
	l, err := attach(c.String("name"))
	if err != nil {
		return err
	}
	return foreground(c.Context, l.Launcher(), c.Args().Slice())
}

func execOn(c *cli.Context) error {
	h, err := hostNumber(c)
	if err != nil {
		return err
	}
	return foreground(c.Context, h, c.Args().Tail())
}

// foreground runs a command as a shell would, with this terminal, and exits with its exit status.
func foreground(ctx context.Context, h *lab.LabHost, argv []string) error {
	if len(argv) == 0 {
		return errors.New("which command?")
	}
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	cmd := h.Command(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Dir = wd
	cmd.Env = append(cmd.Env, "TERM="+os.Getenv("TERM"))
	// The terminal sends an interrupt to the command as well, which decides how to react.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				cmd.Process.Signal(s)
			}
		case err := <-ended:
			return exitStatus(err)
		}
	}
}

// exitStatus turns the end of a command into the end of this one.
func exitStatus(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return cli.Exit("", 128+int(s.Signal()))
	}
	return cli.Exit("", exit.ExitCode())
}
