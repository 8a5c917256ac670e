package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher/output"
	"gorun/worker/bench"
)

// shells have a script each that asks gorun what the word before the cursor may become. Where gorun says nothing, it is the name of a
// file, as of a program.
var shells = map[string]string{
	"bash": `# bash completion for gorun: source <(gorun completion bash)
_gorun() {
    local IFS=$'\n'
    COMPREPLY=($(gorun completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -o filenames -F _gorun gorun horovodrun
`,
	"zsh": `#compdef gorun horovodrun
# zsh completion for gorun: gorun completion zsh >~/.zfunc/_gorun, a directory in fpath
_gorun() {
    local -a found shown
    found=("${(@f)$(gorun completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    shown=("${(@)found/$'\t'/  }")
    found=("${(@)found%%$'\t'*}")
    if [[ -n $found[1] ]]; then compadd -l -d shown -a found; else _files; fi
}
compdef _gorun gorun horovodrun
`,
	"fish": `# fish completion for gorun: gorun completion fish >~/.config/fish/completions/gorun.fish
complete -c gorun -a '(gorun completion words (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
complete -c horovodrun -w gorun
`,
}

// completionCommand prints completion for a shell, and answers it.
func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print completion for bash, zsh or fish",
		UsageText: "gorun completion bash|zsh|fish",
		Description: "Completion of a shell comes from one of these lines in its start-up file:\n" +
			"  source <(gorun completion bash)\n  source <(gorun completion zsh)\n  gorun completion fish | source",
		Action: func(c *cli.Context) error {
			if line := c.Args().Tail(); c.Args().First() == "words" && len(line) > 0 {
				for _, word := range complete(c.App, line) {
					name, meaning, _ := strings.Cut(word, "\t")
					fmt.Fprintf(c.App.Writer, "%s\t%s\n", output.Printable(name), output.Printable(meaning))
				}
				return nil
			}
			script := shells[c.Args().First()]
			if script == "" || c.NArg() != 1 {
				return &usageError{errors.New("completion is for one of bash, zsh, fish"), "source <(gorun completion bash)"}
			}
			_, err := io.WriteString(c.App.Writer, script)
			return err
		},
	}
}

// complete returns what the last word of a command line may become, each with its meaning, if it has one, behind a tab. It returns
// nothing for the name of a file.
func complete(app *cli.App, line []string) (list []string) {
	last, before := line[len(line)-1], line[:len(line)-1]
	flags, command := app.Flags, (*cli.Command)(nil)
	if len(before) > 0 {
		command = app.Command(before[0])
	}
	if command != nil {
		flags, before = visibleFlags(command), before[1:]
	}
	for i := 0; i < len(before); i++ {
		name, _, joined := flagName(before[i])
		f := findFlag(flags, name)
		switch {
		case f == nil && command == nil && name == "": // a program, whose words follow
			return nil
		case f == nil || joined:
		case i+words(f) >= len(before) && words(f) > 0:
			return startingWith(last, slices.Clone(choices[f.Names()[0]]))
		default:
			i += words(f)
		}
	}
	switch {
	case strings.HasPrefix(last, "-"):
		list = flagWords(flags, strings.HasPrefix(last+"--", "--"))
	case command == nil && len(before) == 0:
		for _, c := range visibleCommands(app) {
			list = append(list, c.Name+"\t"+c.Usage)
		}
	case command == nil: // a program
	case slices.Contains(ofJobs, command.Name):
		list = knownJobs()
	case len(before) == 0:
		list = slices.Clone(argumentWords(app)[command.Name])
	}
	return startingWith(last, list)
}

func startingWith(begun string, list []string) []string {
	return slices.DeleteFunc(list, func(word string) bool { return !strings.HasPrefix(word, begun) })
}

// flagWords returns the names of flags, those of several letters with two dashes or with one.
func flagWords(flags []cli.Flag, two bool) (list []string) {
	for _, f := range flagInfos(flags) {
		for _, name := range f.names {
			if !two {
				name = name[len(name)-len(strings.TrimLeft(name, "-"))-1:]
			}
			list = append(list, name+"\t"+f.usage)
		}
	}
	return list
}

// ofJobs are the commands whose argument is a job.
var ofJobs = []string{"attach", "logs", "stacks", "stop", "top", "web", "why"}

// knownJobs returns the names of the user's jobs.
func knownJobs() (names []string) {
	store, err := jobStore()
	if err != nil {
		return nil
	}
	all, _ := store.List()
	for _, r := range all {
		names = append(names, fmt.Sprint(r.ID))
	}
	return names
}

// argumentWords returns the words that may be the argument of some commands.
func argumentWords(app *cli.App) map[string][]string {
	help := append(topicNames(), "flags")
	for _, c := range visibleCommands(app) {
		help = append(help, c.Name)
	}
	return map[string][]string{"bench": bench.Kinds(), "completion": {"bash", "fish", "zsh"}, "help": help}
}

func visibleCommands(app *cli.App) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(app.Commands), func(c *cli.Command) bool { return c.Hidden })
}

// visibleFlags returns the flags of a command that people use; gorun uses the others to call itself.
func visibleFlags(c *cli.Command) []cli.Flag {
	return slices.DeleteFunc(slices.Clone(c.Flags), func(f cli.Flag) bool {
		v, ok := f.(cli.VisibleFlag)
		return ok && !v.IsVisible()
	})
}
