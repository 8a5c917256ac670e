package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/output"
)

// launchFlags are the flags of a job, a table for each concern.
func launchFlags() []cli.Flag {
	return slices.Concat(placeFlags(), connectFlags(), programFlags(), streamFlags(), lifetimeFlags(), otherFlags(), horovodFlags(), knobFlags())
}

// programFlags say what the ranks are.
func programFlags() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "wdir", Aliases: []string{"wd"}, Usage: "working `DIRECTORY` of the ranks", DefaultText: "this one"},
		&cli.BoolFlag{Name: "no-horovod-shim", Usage: "do not offer gorun's drop-in when the program imports horovod"},
	}
}

// lifetimeFlags say how long things may take.
func lifetimeFlags() []cli.Flag {
	startTimeout := timeFlag("start-timeout", time.Minute, "give up if the ranks do not run after this `TIME`: 30 (seconds), 1m30s")
	startTimeout.EnvVars = []string{"HOROVOD_START_TIMEOUT"}
	return []cli.Flag{
		startTimeout,
		timeFlag("grace", 3*time.Second, "`TIME` between TERM and KILL when ranks are stopped"),
	}
}

// otherFlags belong to no concern.
func otherFlags() []cli.Flag {
	return []cli.Flag{
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
	if c.Bool("check-build") {
		return checkBuild(c)
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
	settings, err := readSettings(c)
	if err != nil {
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
	if note := settings.note(); note != "" {
		mux.Note("%s", note)
	}
	// In the background of a terminal, reading is an error (and rank 0 sees the end of its input) instead
	// of a reason to stop the launcher.
	signal.Ignore(syscall.SIGTTIN)
	signals := make(chan int, 8)
	defer forwardSignals(signals)()

	spec := launcher.Spec{
		Placement:    placement,
		Argv:         argv,
		Env:          append(os.Environ(), settings.env...),
		NICs:         slices.Concat(c.StringSlice("network-interfaces"), c.StringSlice("network-interface")),
		Dir:          dir,
		Version:      version,
		Shim:         !c.Bool("no-horovod-shim"),
		Verbose:      c.Bool("verbose"),
		Streams:      c.Int("streams"),
		StartTimeout: timeOf(c, "start-timeout"),
		Grace:        timeOf(c, "grace"),
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
	case timeOf(c, "grace") < 0:
		return wrong("grace", "must not be negative")
	case timeOf(c, "start-timeout") <= 0:
		return wrong("start-timeout", "must be positive")
	}
	for _, key := range c.StringSlice("ssh-identity-file") {
		if _, err := os.Stat(key); err != nil {
			return &usageError{fmt.Errorf("--ssh-identity-file: %w", err), ""}
		}
	}
	return nil
}
