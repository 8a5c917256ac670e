package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/rendezvous/wire"
)

// perProgram are the flags that each of several programs may have.
var perProgram = []string{"np", "wdir", "x", "env", "envlist", "hosts", "hostfile", "hydra-hostfile", "module"}

// readPrograms splits what follows the flags into programs: gorun -np 1 a : -np 2 --wdir d -H host b. Hosts that are
// named before the first program are for all programs that name none. The notes are for the user.
func readPrograms(ctx context.Context, o *jobFlags) (programs []program, notes []string, err error) {
	args := o.args
	if len(args) > 0 && args[0] == "--" { // which may stand between the flags and a program
		args = args[1:]
	}
	first, rest := cutProgram(args)
	if err := checkProgram(first, "before", rest != nil); err != nil {
		return nil, nil, err
	}
	p, notes, err := readProgram(o, first)
	if err != nil {
		return nil, nil, err
	}
	common, more, err := hydraVariables(o.genvList, o.genv, os.Environ())
	if err != nil {
		return nil, nil, err
	}
	request := detachedOf(ctx).Request()
	if o.envFile != "" && request == nil {
		if p.fromFile, err = readEnvFile(o.envFile); err != nil {
			return nil, nil, err
		}
	}
	common = slices.Concat(p.fromFile, common)
	if o.onLoss != "" {
		common = append(common, "GORUN_ON_LOSS="+o.onLoss)
	}
	p.Env, notes = slices.Concat(common, p.Env), append(notes, more...)
	programs = append(programs, p)
	for rest != nil {
		var words []string
		words, rest = cutProgram(rest)
		p, more, err := readFurther(ctx, words)
		if err != nil {
			return nil, nil, err
		}
		p.Env = slices.Concat(common, p.Env)
		programs, notes = append(programs, p), append(notes, more...)
	}
	if len(programs) > 1 {
		for i := range programs {
			programs[i].Ranks = max(programs[i].Ranks, 1) // as Hydra; a single one fills all slots
		}
	}
	if request != nil {
		return programs, nil, asSent(request, programs) // its user has read the notes
	}
	return programs, notes, nil
}

// asSent gives programs what only the machine of their user could see.
func asSent(r *wire.Detach, programs []program) error {
	if len(r.Programs) == 0 {
		return nil // a job that was detached by an older version has all of that in its words
	}
	if len(r.Programs) != len(programs) {
		return fmt.Errorf("%d programs were sent, of %d", len(r.Programs), len(programs))
	}
	for i, sent := range r.Programs {
		programs[i].Argv, programs[i].Env, programs[i].Dir = sent.Argv, sent.Env, sent.Dir
	}
	return nil
}

// readFurther reads a program behind a colon, with flags of its own.
func readFurther(ctx context.Context, words []string) (p program, notes []string, err error) {
	own := new(jobFlags)
	app := &cli.App{Name: "gorun", Flags: pick(own.table(), perProgram...), HideHelp: true, HideVersion: true, DisableSliceFlagSeparator: true,
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return afterColon(err)
		},
		Action: func(c *cli.Context) (err error) {
			own.read(c)
			if err := checkProgram(own.args, "behind", len(own.names) == 0); err != nil {
				return err
			}
			p, notes, err = readProgram(own, own.args)
			if err == nil && own.namesHosts() {
				p.hosts, _, err = hostList(own, p.Ranks)
			}
			return err
		}}
	if words, err = launchArgs(append([]string{"gorun"}, words...), app.Flags); err != nil {
		return p, nil, err
	}
	return p, notes, app.RunContext(ctx, words)
}

// cutProgram cuts at the first ":", as mpirun and Hydra do. The rest is nil if there is none.
func cutProgram(args []string) (program, rest []string) {
	if i := slices.Index(args, ":"); i >= 0 {
		return args[:i], append([]string{}, args[i+1:]...)
	}
	return args, nil
}

// checkProgram refuses what is no program: nothing at all, or nothing on one side of a colon.
func checkProgram(argv []string, side string, colon bool) error {
	switch {
	case len(argv) == 0 && colon:
		return &usageError{fmt.Errorf("no program %s %q", side, ":"), "gorun -np 1 python first.py : -np 3 python others.py"}
	case len(argv) == 0:
		return &usageError{errNoProgram, "gorun -np 4 -H host1:2,host2:2 python train.py"}
	case strings.HasPrefix(argv[0], "-"):
		return &usageError{fmt.Errorf("unknown flag %s", argv[0]), "gorun help flags lists them"}
	}
	return nil
}

func readProgram(o *jobFlags, argv []string) (p program, notes []string, err error) {
	dir, err := filepath.Abs(o.dir) // "" is the current one
	if err != nil {
		return p, nil, fmt.Errorf("find working directory: %w", err)
	}
	if o.module {
		argv = append([]string{"python3", "-m"}, argv...)
	}
	if err := checkRanks(o); err != nil {
		return p, nil, err
	}
	env, notes, err := readVariables(o, os.Environ())
	return program{Program: launcher.Program{Ranks: o.np, Argv: argv, Dir: dir, Env: env}}, notes, err
}

// readVariables returns what -x and Hydra's words for it set for one program, given the launcher's environment.
func readVariables(o *jobFlags, environ []string) (env, notes []string, err error) {
	env, notes, err = variables(o.variables.Value(), environ)
	if err != nil {
		return nil, nil, err
	}
	local, more, err := hydraVariables(o.envList, o.env, environ)
	return append(env, local...), append(notes, more...), err
}

// hydraVariables returns what two flags of Hydra set: one with a list of names, the other with a name and a value.
func hydraVariables(list string, set pairs, environ []string) (env, notes []string, err error) {
	names := slices.DeleteFunc(strings.Split(list, ","), func(name string) bool { return name == "" })
	env, notes, err = variables(names, environ)
	set.each(func(name, value string) { env = append(env, name+"="+value) })
	return env, notes, err
}

// variables returns what names, patterns and assignments set, given the launcher's environment.
func variables(names, environ []string) (env, notes []string, err error) {
	for _, spec := range names {
		name, _, assigned := strings.Cut(spec, "=")
		if _, bad := path.Match(name, ""); name == "" || !assigned && bad != nil {
			return nil, nil, &usageError{fmt.Errorf("-x %s: not a variable", spec), "-x NAME=VALUE, -x NAME or -x 'NCCL_*'"}
		}
		if assigned {
			env = append(env, spec)
			continue
		}
		found := false
		for _, kv := range environ {
			have, _, _ := strings.Cut(kv, "=")
			if ok, _ := path.Match(name, have); ok && have != "" {
				env, found = append(env, kv), true
			}
		}
		if !found {
			notes = append(notes, fmt.Sprintf("gorun: note: -x %s: no such variable is set here", name))
		}
	}
	return env, notes, nil
}

// afterColon describes a mistake in the flags of a program that is not the first: many flags are known, but not allowed
// there.
func afterColon(err error) error {
	why, hint := reword(err), "flags of the whole job go before the first program"
	if name, unknown := strings.CutPrefix(err.Error(), unknownFlag); unknown {
		if slices.ContainsFunc(new(jobFlags).table(), func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }) {
			why = fmt.Errorf("--%s is for the whole job, not for one program", name)
		} else {
			hint = "gorun help flags lists them"
		}
	}
	return &usageError{fmt.Errorf("after %q: %w", ":", why), hint}
}
