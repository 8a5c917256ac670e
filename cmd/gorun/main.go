// Command gorun starts data-parallel training jobs on hosts that have nothing but sshd and Python, and runs the
// collectives of their ranks. The binary is the launcher and, as `gorun worker`, the daemon of its own host and of
// clusters; other hosts get gorund over ssh.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/worker/command"
)

// The library asks this function for every page of help, so one place decides how help looks.
func init() {
	cli.HelpPrinter = func(w io.Writer, _ string, what any) {
		switch what := what.(type) {
		case *cli.App:
			if what.Name == horovodrun {
				horovodHelp(w, what)
			} else {
				mainHelp(w, what, commands(nil))
			}
		case *cli.Command:
			commandHelp(w, what)
		}
	}
}

func main() { os.Exit(run(os.Args)) }

// run is main without the exit, so that tests can call it.
func run(args []string) int {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	hurry := make(chan struct{})
	defer onInterrupt(stop, hurry)()

	self := command.Process{Version: version, Env: os.Environ()}
	if serve := self.Parse(args[1:]); serve != nil {
		return explain(os.Stderr, serve(ctx))
	}
	app := newApp(hurry)
	if calledHorovodrun(args) {
		app.Name = horovodrun
	}
	var err error
	if len(args) > 2 && slices.Contains(helpWords, args[1]) && app.Command(args[2]) == nil {
		args = args[:2] // whatever the rest is
	}
	if isLaunch(args) {
		// What follows the flags is a program, even if it is called like one of our commands.
		app.Commands = nil
		if args, err = launchArgs(args, app.Flags); err != nil {
			return explain(os.Stderr, err)
		}
	}
	d, err := openDetached()
	if err != nil {
		return explain(os.Stderr, err)
	}
	err = app.RunContext(context.WithValue(ctx, detachedKey{}, d), argumentLast(args))
	code := explain(os.Stderr, meantCommand(err, commands(nil)))
	d.End(code, endText(err))
	return code
}

func newApp(hurry <-chan struct{}) *cli.App { return appOf(new(jobFlags), hurry) }

// appOf returns the program, which fills o when it launches a job.
func appOf(o *jobFlags, hurry <-chan struct{}) *cli.App {
	flags := o.table()
	return &cli.App{
		Name:            "gorun",
		Usage:           "run a data-parallel program (Horovod, torch, MPI) on many hosts",
		UsageText:       "gorun [-np N] [-H host1:slots,host2:slots] program [arguments]\n  gorun topo [-H host1,host2]",
		HideVersion:     true, // its -v is ours for verbose
		HideHelpCommand: true,

		DisableSliceFlagSeparator: true,
		// The library has --help only where it has its own help command too.
		Flags:  append(flags, cli.HelpFlag),
		Before: applySettings,
		Action: func(c *cli.Context) error {
			o.read(c)
			return launch(c.Context, o, hurry)
		},
		Commands: commands(hurry),
		// Errors are printed in one place, by explain; the library must not exit by itself.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   explainFlag(flags, "gorun help flags lists them; flags go before the program"),
	}
}

// commands are all but the launch itself. None answers a mistake with pages of help.
func commands(hurry <-chan struct{}) []*cli.Command {
	all := append([]*cli.Command{psCommand(), topCommand(), whyCommand(), stacksCommand(), webCommand(), logsCommand(),
		attachCommand(), stopCommand(), drainCommand(), cleanCommand()},
		doctorCommand(), topoCommand(), benchCommand(hurry), workerCommand(hurry), rshAgentCommand(), completionCommand(), manCommand(), versionCommand(), helpCommand())
	for _, c := range all {
		c.Before = applySettings
		c.OnUsageError = explainFlag(c.Flags, "gorun "+c.Name+" --help lists the flags")
		c.HideHelpCommand = true
	}
	return all
}

// explainFlag describes a mistake in a flag in a user's words.
func explainFlag(flags []cli.Flag, hint string) cli.OnUsageErrorFunc {
	return func(_ *cli.Context, err error, _ bool) error {
		hint := hint
		if name, ok := strings.CutPrefix(err.Error(), unknownFlag); ok {
			if names := begunBy(flags, name); len(names) > 1 && calledHorovodrun(os.Args) {
				return &usageError{fmt.Errorf("--%s is ambiguous", name), "write out which one is meant: --" + strings.Join(names, ", --")}
			}
			if meant := peerHint(flags, name); meant != "" && findFlag(flags, "np") != nil {
				hint = meant
			} else if meant := likeFlag(flags, name); meant != "" {
				hint = "did you mean --" + meant + "? " + hint
			}
		}
		return &usageError{err: reword(err), hint: hint}
	}
}
