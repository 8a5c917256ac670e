package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"

	"gorun/launcher/elastic"
)

// horovodrun is the other name of this program: a link of that name behaves as users of Horovod expect.
const horovodrun = "horovodrun"

// calledHorovodrun reports whether the user ran a link called horovodrun.
func calledHorovodrun(args []string) bool {
	return len(args) > 0 && filepath.Base(args[0]) == horovodrun
}

// isLaunch reports whether args start a job rather than a command: the first argument is a flag of the launcher.
func isLaunch(args []string) bool {
	return len(args) > 1 && strings.HasPrefix(args[1], "-") && !slices.Contains(helpWords, args[1]) && !slices.Contains([]string{"--version", "-version"}, args[1])
}

// helpWords ask for help.
var helpWords = []string{"-h", "--help", "-help"}

// launchArgs rewrites the flags of a launch for the flag parser, which knows only flags of one word: a flag of two
// (mpirun's -mca KEY VALUE) becomes one word with a space in it. The -v of horovodrun asks for its version. Everything
// after the flags is the program and stays as it is. If a flag is given twice, the last one counts, as for horovodrun
// and mpirun; hosts given twice are an error, because mpirun takes all of them.
func launchArgs(args []string, flags []cli.Flag) ([]string, error) {
	if len(args) < 2 {
		return args, nil
	}
	hosts := 0
	out := slices.Clone(args[:1])
	horovod := calledHorovodrun(args)
	if horovod {
		args = slices.Clone(args)
	}
	for i := 1; i < len(args); i++ {
		name, _, joined := flagName(args[i])
		f := findFlag(flags, name)
		if horovod && strings.HasPrefix(args[i], "--") && (f == nil || shortRange(name, args[i:])) {
			if full := completed(flags, name); full != "" {
				args[i] = "--" + full + strings.TrimPrefix(args[i], "--"+name)
				f = findFlag(flags, full)
			}
		}
		if f == nil {
			return append(out, args[i:]...), nil
		}
		if f == cli.HelpFlag { // whatever the rest is
			return []string{args[0], args[i]}, nil
		}
		if f.Names()[0] == "hosts" {
			hosts++
		}
		if hosts > 1 && !horovod {
			said, _, _ := strings.Cut(args[i], "=")
			return nil, &usageError{fmt.Errorf("%s: hosts are named before it", said), "name all hosts at once: -H host1,host2"}
		}
		values := words(f)
		if slices.Contains([]string{"env", "genv"}, f.Names()[0]) && i+1 < len(args) && strings.Contains(args[i+1], "=") {
			values = 1 // Hydra takes NAME=VALUE beside NAME VALUE
		}
		if f.Names()[0] == "configfile" && (joined || i+1 < len(args)) {
			apps, err := configured(args, i, flags)
			return append(out, apps...), err
		}
		switch {
		case name == "v" && horovod:
			out = append(out, "--version")
		case joined || values == 0:
			out = append(out, args[i])
		case i+values < len(args):
			out = append(out, args[i], strings.Join(args[i+1:i+1+values], " "))
			i += values
		default: // the parser reports what is missing
			return append(out, args[i:]...), nil
		}
	}
	return out, nil
}

// configured reads the file that a --configfile, args[i], names, and returns its programs as arguments of a launch.
func configured(args []string, i int, flags []cli.Flag) ([]string, error) {
	name, file, joined := flagName(args[i])
	after := args[i+1:]
	if !joined {
		file, after = after[0], after[1:]
	}
	apps, err := readApps(file)
	if err == nil && len(after) > 0 {
		err = &usageError{fmt.Errorf("--%s: the programs are those of the file", name), "flags of the whole job go before it"}
	}
	if err != nil {
		return nil, err
	}
	f := findFlag(flags, name)
	others := slices.DeleteFunc(slices.Clone(flags), func(other cli.Flag) bool { return other == f })
	apps, err = launchArgs(append(args[:1:1], apps...), others)
	return apps[min(1, len(apps)):], err
}

// shortRange reports whether a user of horovodrun has shortened --blacklist-cooldown-range to --blacklist, which is a
// flag of gorun with other values.
func shortRange(name string, args []string) bool {
	_, value, joined := flagName(args[0])
	if !joined && len(args) > 1 {
		value = args[1]
	}
	_, err := elastic.ParseBlacklist(value)
	return name == "blacklist" && err != nil
}

// flagName splits -name, --name and --name=value.
func flagName(arg string) (name, value string, joined bool) {
	if !strings.HasPrefix(arg, "-") || arg == "-" || arg == "--" {
		return "", "", false
	}
	return strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
}

func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if name != "" && slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

// words returns how many arguments f takes.
func words(f cli.Flag) int {
	if g, ok := f.(*cli.GenericFlag); ok {
		if pair, ok := g.Value.(interface{ Words() int }); ok {
			return pair.Words()
		}
	}
	if v, ok := f.(cli.DocGenerationFlag); ok && v.TakesValue() {
		return 1
	}
	return 0
}

// completed returns the one flag of horovodrun whose name begins with a text, as its parser completes names, and "" if
// there is none or more than one.
func completed(flags []cli.Flag, begun string) (full string) {
	if names := begunBy(flags, begun); len(names) == 1 {
		return names[0]
	}
	return ""
}

// begunBy returns the flags of horovodrun whose names begin with a text, each by one of its names.
func begunBy(flags []cli.Flag, begun string) (names []string) {
	if begun == "" {
		return nil
	}
	var found []cli.Flag
	for _, name := range horovodNames() {
		if f := findFlag(flags, name); f != nil && strings.HasPrefix(name, begun) && !slices.Contains(found, f) {
			found, names = append(found, f), append(names, name)
		}
	}
	return names
}

// likeFlag returns the name of the flag that a mistyped one resembles, "" if there is none.
func likeFlag(flags []cli.Flag, typed string) (name string) {
	if full := completed(flags, typed); full != "" && len(typed) > 2 {
		return full
	}
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	least := 1 + min(2, len(typed)/3) // typing errors that are forgiven, and one more
	for _, n := range names {
		if d := typos(typed, n); d < least {
			least, name = d, n
		}
	}
	return name
}

// typos counts the letters that must be added, left out or changed to turn a into b.
func typos(a, b string) int { return smetrics.WagnerFischer(a, b, 1, 1, 1) }
