// Command gorun starts data-parallel training jobs on hosts that have nothing but sshd and Python, and
// runs the collectives of their ranks. The binary is the launcher and, as `gorun worker`, the daemon of its own host and of clusters;
// other hosts get gorund over ssh.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/worker/command"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(run(os.Args)) }

// run is main without the exit, so that tests can call it.
func run(args []string) int {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	hurry := make(chan struct{})
	defer onInterrupt(stop, hurry)()

	self := command.Process{Version: version, Env: os.Environ(), Program: hostProgram}
	if serve := self.Parse(args[1:]); serve != nil {
		return explain(os.Stderr, serve(ctx))
	}
	app := newApp(hurry)
	var err error
	if len(args) > 2 && slices.Contains(helpWords, args[1]) && app.Command(args[2]) == nil {
		args = args[:2] // whatever it is asked about
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
	err = app.RunContext(context.WithValue(ctx, detachedKey{}, d), operationLast(args))
	code := explain(os.Stderr, err)
	d.End(code)
	return code
}

func newApp(hurry <-chan struct{}) *cli.App { return appOf(new(jobFlags), hurry) }

// appOf returns the program, which fills o when it launches a job.
func appOf(o *jobFlags, hurry <-chan struct{}) *cli.App {
	flags := o.table()
	return &cli.App{
		Name:            "gorun",
		Usage:           "run a Horovod, torch.distributed or other data-parallel program on many hosts",
		UsageText:       "gorun [-np N] [-H host1:slots,host2:slots] program [arguments]\n  gorun topo [-H host1,host2]",
		HideVersion:     true, // its -v is ours for verbose
		HideHelpCommand: true,

		DisableSliceFlagSeparator: true,
		Description:               exitStatusHelp,

		CustomAppHelpTemplate: helpTemplate,
		// The library has --help only where it has its own help command too.
		Flags: append(flags, cli.HelpFlag),
		Action: func(c *cli.Context) error {
			o.read(c)
			return launch(c.Context, o, hurry)
		},
		Commands: commands(hurry),
		// Errors are printed in one place, by explain; the library must not exit by itself.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   explainFlag(flags, "gorun --help lists the flags; flags go before the program"),
	}
}

// commands are all but the launch itself. None answers a mistake with pages of help.
func commands(hurry <-chan struct{}) []*cli.Command {
	all := append([]*cli.Command{topoCommand(), benchCommand(hurry), doctorCommand(), workerCommand(hurry), completionCommand(), manCommand(), versionCommand(), helpCommand(), rshAgentCommand()},
		psCommand(), topCommand(), logsCommand(), attachCommand(), stopCommand())
	for _, c := range all {
		c.OnUsageError = explainFlag(c.Flags, "gorun "+c.Name+" --help lists the flags")
		c.HideHelpCommand = true
	}
	return all
}

// explainFlag says what is wrong with a flag in the words of a user.
func explainFlag(flags []cli.Flag, hint string) cli.OnUsageErrorFunc {
	return func(_ *cli.Context, err error, _ bool) error {
		hint := hint
		if name, ok := strings.CutPrefix(err.Error(), unknownFlag); ok {
			if names := begunBy(flags, name); len(names) > 1 && calledHorovodrun(os.Args) {
				return &usageError{fmt.Errorf("--%s is ambiguous", name), "write out which one is meant: --" + strings.Join(names, ", --")}
			}
			if meant := peerHint(name); meant != "" && findFlag(flags, "np") != nil {
				hint = "instead of --" + name + " here: " + meant
			} else if meant := likeFlag(flags, name); meant != "" {
				hint = "did you mean --" + meant + "? " + hint
			}
		}
		if name, ok := strings.CutPrefix(err.Error(), noArgument); ok {
			if err := noFile(flags, name); err != nil {
				return err
			}
		}
		return &usageError{err: reword(err), hint: hint}
	}
}

// helpTemplate shows what people look for first: usage, flags, then what the exit status means. Flags are
// accepted with one dash and with two, as users of mpirun and of horovodrun write them.
const helpTemplate = `{{.Name}} - {{.Usage}}

Usage:
  {{.UsageText}}

Flags (one dash or two; they go before the program):
{{range .VisibleFlags}}  {{.}}
{{end}}
{{.Description}}
`

// noFile is that a flag which names a file names none; nil if it is no such flag. The hint says whether it may also be
// standard output.
func noFile(flags []cli.Flag, name string) error {
	at := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if at < 0 {
		return nil
	}
	file, ok := flags[at].(*cli.PathFlag)
	if !ok {
		return nil
	}
	hint := "--" + name + " FILE"
	if strings.Contains(file.Usage, "- for standard output") {
		hint += ", or --" + name + " - for standard output"
	}
	return &usageError{fmt.Errorf("--%s: no file name", name), hint}
}

// How the flag package begins to speak of a flag.
const (
	unknownFlag = "flag provided but not defined: -"
	noArgument  = "flag needs an argument: -"
)

// reword says what the flag package means in the words of a user.
func reword(err error) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, unknownFlag); ok {
		return fmt.Errorf("unknown flag --%s", name)
	}
	if names, ok := strings.CutPrefix(text, "Cannot use two forms of the same flag: "); ok {
		return fmt.Errorf("--%s are two names of the same flag: give one", strings.ReplaceAll(names, " ", " and --"))
	}
	return errors.New(strings.TrimSuffix(text, ": parse error"))
}

func helpCommand() *cli.Command {
	return &cli.Command{Name: "help", Usage: "show the flags, or those of a command: gorun help topo", Action: func(c *cli.Context) error {
		name := c.Args().First()
		if name == "" {
			return cli.ShowAppHelp(c)
		}
		command := c.App.Command(name)
		if command == nil {
			return &usageError{fmt.Errorf("help: there is no command %s", name), "gorun help; to run a program of that name: gorun -np N help …"}
		}
		cli.HelpPrinter(c.App.Writer, cmp.Or(command.CustomHelpTemplate, cli.CommandHelpTemplate), command)
		return nil
	}}
}

func versionCommand() *cli.Command {
	return &cli.Command{Name: "version", Usage: "print the version", Action: func(c *cli.Context) error {
		if c.Args().Present() {
			return &usageError{errors.New("version takes no arguments"), "to run a program of that name: gorun -np N version …"}
		}
		return printVersion(c.App.Writer)
	}}
}

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, "gorun", version)
	return err
}

// usageError is a mistake on the command line.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func (e *usageError) ExitCode() int { return launcher.ExitUsage }

func (e *usageError) NextStep() string { return e.hint }

// exclusive refuses two flags of which only one can count.
func exclusive(first, second string) error {
	return fmt.Errorf("--%s and --%s exclude each other", first, second)
}

var errNoProgram = errors.New("no program to run")
