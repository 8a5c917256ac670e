package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/hosts"
	"gorun/rendezvous/wire"
)

// programFlags say what the ranks are.
type programFlags struct {
	dir               string
	variables         cli.StringSlice
	envNone, genvAll  bool
	genv, env         pairs
	genvList, envList string
	wrapper           string
	gpus              string
	strict            bool
	noShim            bool
	module            bool
}

// programTable binds them.
func (o *jobFlags) programTable() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "wdir", Destination: &o.dir, Aliases: []string{"wd"}, Usage: "working `DIRECTORY` of the ranks", DefaultText: "this one"},
		&cli.StringSliceFlag{Name: "x", Destination: &o.variables, Usage: "set a variable for the ranks: `NAME=VALUE`, or NAME or a pattern ('NCCL_*') for what is set here; may be given more than once"},
		&cli.BoolFlag{Name: "env-none", Destination: &o.envNone, Aliases: []string{"genvnone", "envnone"}, Usage: "pass on nothing of this environment but what -x names"},
		&cli.GenericFlag{Name: "genv", Value: &o.genv, Usage: "Hydra's -x, for all of several programs: `NAME VALUE`", Hidden: true},
		&cli.GenericFlag{Name: "env", Value: &o.env, Usage: "Hydra's -x: `NAME VALUE`", Hidden: true},
		&cli.StringFlag{Name: "genvlist", Destination: &o.genvList, Usage: "Hydra's -x for a `LIST` of names, for all of several programs", Hidden: true},
		&cli.StringFlag{Name: "envlist", Destination: &o.envList, Usage: "Hydra's -x for a `LIST` of names", Hidden: true},
		&cli.BoolFlag{Name: "genvall", Destination: &o.genvAll, Aliases: []string{"envall"}, Usage: "pass on this environment, as always", Hidden: true},
		&cli.StringFlag{Name: "rank-wrapper", Destination: &o.wrapper, Usage: "run each rank by `COMMAND`, in which {rank}, {local_rank} and {gpu} are filled in: 'numactl -N {local_rank} --'"},
		&cli.StringFlag{Name: "gpus", Destination: &o.gpus, Usage: "set CUDA_VISIBLE_DEVICES by slot: auto for the GPUs (or MIG parts) of each host, or a `LIST` of indexes or UUIDs", DefaultText: "left to the program"},
		&cli.BoolFlag{Name: "tf-config", Destination: &o.TF, Usage: "set TF_CONFIG, for tf.distribute"},
		&cli.BoolFlag{Name: "pmi-port", Destination: &o.PMIPort, Usage: "let MPI programs find gorun by a port of their host (PMI_PORT): for sudo and containers, which close descriptors"},
		&cli.BoolFlag{Name: "strict", Destination: &o.strict, Usage: "end the job as soon as a rank is seen to be alone by its MPI library, as under Open MPI; --strict=false only warns of it", DefaultText: "a job in which ranks were alone fails at its end"},
		&cli.BoolFlag{Name: "no-horovod-shim", Destination: &o.noShim, Usage: "do not offer gorun's drop-in when the program imports horovod"},
	}
}

// perProgram are the flags that each of several programs may have.
var perProgram = []string{"np", "wdir", "x", "env", "envlist", "hosts", "hostfile", "hydra-hostfile", "module"}

// program is one of those that a job runs.
type program struct {
	launcher.Program
	hosts []hosts.Host // of its own; nil for those of the job
}

// pairs is the value of a flag of two words, such as -mca KEY VALUE.
type pairs []string

// Set implements flag.Value; launchArgs has joined the words.
func (p *pairs) Set(s string) error {
	if !strings.ContainsAny(s, " =") {
		return errors.New("takes a name and a value")
	}
	*p = append(*p, s)
	return nil
}

func (p *pairs) String() string { return "" }

// Words is how many arguments the flag takes.
func (p *pairs) Words() int { return 2 }

// each calls f for every pair.
func (p pairs) each(f func(name, value string)) {
	for _, s := range p {
		i := strings.IndexAny(s, " =")
		f(s[:i], s[i+1:])
	}
}

// readPrograms splits what follows the flags into programs: gorun -np 1 a : -np 2 --wdir d -H host b. Hosts before the first
// are the job's: of all programs that name none. Their notes are for the user to read.
func readPrograms(ctx context.Context, o *jobFlags) (programs []program, notes []string, err error) {
	first, rest := cutProgram(withoutDashes(o.args))
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
	return programs, notes, nil
}

// withoutDashes takes the -- away that may stand between the flags and a program.
func withoutDashes(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
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
		return &usageError{fmt.Errorf("unknown flag %s", argv[0]), "gorun --help lists the flags"}
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
		if name == "" || !assigned && badPattern(name) {
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

func badPattern(name string) bool {
	_, err := path.Match(name, "")
	return err != nil
}

// gpusOf reads --gpus.
func gpusOf(o *jobFlags) ([]string, error) {
	if !o.given(&o.gpus) {
		return nil, nil
	}
	list := strings.Split(o.gpus, ",")
	for _, id := range list {
		if id == "" || strings.ContainsAny(id, " \t") || id == "auto" && len(list) > 1 {
			return nil, &usageError{fmt.Errorf("--gpus %q: neither auto nor a list of GPUs", o.gpus), "--gpus auto, --gpus 0,1 or --gpus GPU-…,MIG-…"}
		}
	}
	return list, nil
}

// ranksOf is how many ranks several programs have together, 0 for a single one.
func ranksOf(programs []program) int {
	n := 0
	if len(programs) > 1 {
		for _, p := range programs {
			n += p.Ranks
		}
	}
	return n
}

// readWrapper splits --rank-wrapper into words as a shell would.
func readWrapper(o *jobFlags) ([]string, error) {
	words, err := splitWords(o.wrapper)
	if err = cmp.Or(err, wire.CheckTemplate(words)); err != nil {
		return nil, &usageError{fmt.Errorf("--rank-wrapper: %w", err), "--rank-wrapper 'numactl -N {local_rank} --'"}
	}
	return words, nil
}

// splitWords splits at blanks; quotes and backslashes mean what they mean to a shell.
func splitWords(s string) ([]string, error) {
	var (
		words []string
		word  strings.Builder
		quote byte
		open  bool // a word has begun, if only with an empty pair of quotes
	)
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b == 0:
			return nil, errors.New("holds a zero byte")
		case quote == 0 && (b == ' ' || b == '\t' || b == '\n'):
			if open {
				words = append(words, word.String())
				word.Reset()
			}
			open = false
		case quote == 0 && (b == '\'' || b == '"'):
			quote, open = b, true
		case b == quote && quote != 0:
			quote = 0
		case b == '\\' && quote != '\'' && i+1 < len(s):
			i++
			word.WriteByte(s[i])
			open = true
		default:
			word.WriteByte(b)
			open = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("%c without an end", quote)
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}

// afterColon says what is wrong with the flags of a program that is not the first: many are known, but not there.
func afterColon(err error) error {
	why, hint := reword(err), "flags of the whole job go before the first program"
	if name, unknown := strings.CutPrefix(err.Error(), unknownFlag); unknown {
		if slices.ContainsFunc(new(jobFlags).table(), func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }) {
			why = fmt.Errorf("--%s is for the whole job, not for one program", name)
		} else {
			hint = "gorun --help lists the flags"
		}
	}
	return &usageError{fmt.Errorf("after %q: %w", ":", why), hint}
}
