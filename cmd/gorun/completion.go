package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/worker/bench"
)

// completionCommand prints completion for a shell. Like the manual page it is made from the flag tables, so
// that it knows every flag.
func completionCommand(newApp func() *cli.App) *cli.Command {
	shells := map[string]func(io.Writer, *cli.App){"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	return &cli.Command{
		Name:      "completion",
		Usage:     "print completion for bash, zsh or fish",
		UsageText: "gorun completion bash|zsh|fish",
		Description: "Completion of a shell comes from one of these lines in its start-up file:\n" +
			"  source <(gorun completion bash)\n  source <(gorun completion zsh)\n  gorun completion fish | source",
		Action: func(c *cli.Context) error {
			if list := candidates[c.Args().First()]; list != nil && c.NArg() == 1 {
				return printCandidates(c.App.Writer, list())
			}
			write := shells[c.Args().First()]
			if write == nil || c.NArg() != 1 {
				return &usageError{errors.New("completion is for one of bash, zsh, fish"), "source <(gorun completion bash)"}
			}
			write(c.App.Writer, newApp())
			return nil
		},
	}
}

// ofJobs are the commands whose argument is a job.
var ofJobs = []string{"attach", "logs", "stacks", "stop", "top", "web", "why"}

// Command lines that print what a user may mean: jobs and hosts.
const (
	listJobNames  = "gorun completion jobs 2>/dev/null"
	listHostNames = "gorun completion hosts 2>/dev/null"
)

// argumentWords returns the words that may be the argument of some commands.
func argumentWords(app *cli.App) map[string][]string {
	return map[string][]string{
		"bench":      bench.Kinds(),
		"completion": {"bash", "fish", "zsh"},
		"help":       slices.Concat(commandNames(app), []string{"flags"}, topicNames()),
	}
}

// namesOf lists the names of flags; with withValue, only of the flags that take a value.
func namesOf(infos []flagInfo, withValue bool) []string {
	var out []string
	for _, f := range infos {
		if !withValue || f.value != "" {
			out = append(out, f.names...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
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

func commandNames(app *cli.App) []string {
	var out []string
	for _, c := range visibleCommands(app) {
		out = append(out, c.Name)
	}
	return out
}

func bashCompletion(w io.Writer, app *cli.App) {
	infos := flagInfos(app.Flags)
	fmt.Fprintf(w, `# bash completion for gorun: source <(gorun completion bash)
_gorun() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local flags="%s" values="%s" commands="%s" i
    case ${COMP_WORDS[1]} in
`, strings.Join(namesOf(infos, false), " "), strings.Join(namesOf(infos, true), " "), strings.Join(commandNames(app), " "))
	for _, c := range visibleCommands(app) {
		own := flagInfos(visibleFlags(c))
		fmt.Fprintf(w, "    %s) flags=\"%s\" values=\"%s\" commands=\"\" ;;\n", c.Name, strings.Join(namesOf(own, false), " "), strings.Join(namesOf(own, true), " "))
	}
	fmt.Fprint(w, `    esac
    [[ $prev == -[!-]?* ]] && prev=-$prev # one dash or two
    case $prev in
`)
	for _, f := range infos {
		switch {
		case len(f.words) > 0:
			fmt.Fprintf(w, "    %s) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return ;;\n", strings.Join(f.names, "|"), strings.Join(f.words, " "))
		case f.hosts:
			fmt.Fprintf(w, "    %s) COMPREPLY=($(compgen -P \"${cur%%\"${cur##*,}\"}\" -W \"$(%s)\" -- \"${cur##*,}\")); return ;;\n", strings.Join(f.names, "|"), listHostNames)
		}
	}
	var words strings.Builder
	for _, c := range visibleCommands(app) {
		if list := argumentWords(app)[c.Name]; list != nil {
			fmt.Fprintf(&words, "            %s) ((COMP_CWORD == 2)) && COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")) && return ;;\n", c.Name, strings.Join(list, " "))
		}
	}
	fmt.Fprintf(w, `    esac
    if [[ " $values " == *" $prev "* ]]; then
        COMPREPLY=($(compgen -f -- "$cur"))
        return
    fi
    if [[ $cur != -* ]]; then
        case ${COMP_WORDS[1]} in
            %s) COMPREPLY=($(compgen -W "$(%s)" -- "$cur")); return ;;
%s        esac
    fi
    # What follows the first word that is neither a flag nor its value is the program's.
    for ((i = 1; i < COMP_CWORD; i++)); do
        prev=${COMP_WORDS[i]}
        [[ $prev == -[!-]?* ]] && prev=-$prev
        if [[ " $values " == *" $prev "* ]]; then ((i++)); continue; fi
        [[ $prev == -* || ( $i == 1 && -z $commands ) ]] && continue
        COMPREPLY=($(compgen -f -- "$cur"))
        return
    done
    if [[ $cur == -[!-]?* ]]; then
        COMPREPLY=($(compgen -W "${flags//--/-}" -- "$cur"))
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
    elif ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "$commands" -- "$cur") $(compgen -c -- "$cur"))
    else
        COMPREPLY=($(compgen -c -- "$cur") $(compgen -f -- "$cur"))
    fi
}
complete -o filenames -F _gorun gorun horovodrun
`, strings.Join(ofJobs, "|"), listJobNames, words.String())
}

func zshCompletion(w io.Writer, app *cli.App) {
	clean := strings.NewReplacer("'", "’", "[", "(", "]", ")", ":", ";", "\\", "", "\n", " ")
	specs := func(flags []cli.Flag) {
		for _, f := range flagInfos(flags) {
			value := ""
			switch {
			case len(f.words) > 0:
				value = fmt.Sprintf(":%s:(%s)", clean.Replace(f.value), strings.Join(f.words, " "))
			case f.hosts:
				value = fmt.Sprintf(":%s:_gorun_hosts", clean.Replace(f.value))
			case f.value != "":
				value = fmt.Sprintf(":%s:_files", clean.Replace(f.value))
			}
			for _, name := range f.names {
				fmt.Fprintf(w, "        '*%s[%s]%s' \\\n", name, clean.Replace(f.usage), value)
				if strings.HasPrefix(name, "--") { // with one dash it is understood, but not offered
					fmt.Fprintf(w, "        '!*%s[%s]%s' \\\n", name[1:], clean.Replace(f.usage), value)
				}
			}
		}
	}
	fmt.Fprint(w, "#compdef gorun horovodrun\n# zsh completion for gorun: gorun completion zsh >~/.zfunc/_gorun, a directory in fpath\n_gorun() {\n    case ${words[2]} in\n")
	for _, c := range visibleCommands(app) {
		fmt.Fprintf(w, "    %s) shift words; ((CURRENT--)); _arguments \\\n", c.Name)
		specs(visibleFlags(c))
		switch words := argumentWords(app)[c.Name]; {
		case slices.Contains(ofJobs, c.Name):
			fmt.Fprint(w, "        '*:job:_gorun_jobs' ;;\n")
		case words != nil:
			fmt.Fprintf(w, "        '1:word:(%s)' ;;\n", strings.Join(words, " "))
		default:
			fmt.Fprint(w, "        '*:argument:_files' ;;\n")
		}
	}
	fmt.Fprint(w, "    *) _arguments \\\n")
	specs(app.Flags)
	fmt.Fprint(w, "        '(-)1:program:_gorun_first' '*::argument:_normal' ;;\n    esac\n}\n_gorun_first() {\n    local -a commands=(\n")
	for _, c := range visibleCommands(app) {
		fmt.Fprintf(w, "        '%s:%s'\n", c.Name, clean.Replace(c.Usage))
	}
	fmt.Fprint(w, "    )\n    _describe command commands\n    _command_names -e\n}\n")
	fmt.Fprintf(w, "_gorun_jobs() { compadd -- ${(f)\"$(%s)\"} }\n", listJobNames)
	fmt.Fprintf(w, "_gorun_hosts() { compset -P '*,'; compadd -- ${(f)\"$(%s)\"} }\n", listHostNames)
	fmt.Fprint(w, "compdef _gorun gorun horovodrun\n")
}

func fishCompletion(w io.Writer, app *cli.App) {
	clean := strings.NewReplacer("'", "’", "\\", "", "\n", " ")
	fmt.Fprint(w, "# fish completion for gorun: gorun completion fish >~/.config/fish/completions/gorun.fish\n")
	fmt.Fprintf(w, "function __gorun_hosts\n    set -l before (commandline -ct | string replace -r '[^,]*$' '')\n    for host in (%s)\n        echo $before$host\n    end\nend\n", listHostNames)
	specs := func(flags []cli.Flag, condition string) {
		for _, f := range flagInfos(flags) {
			for _, name := range f.names {
				bare := strings.TrimLeft(name, "-")
				fmt.Fprintf(w, "complete -c gorun -n '%s'", condition)
				if len(bare) == 1 {
					fmt.Fprintf(w, " -s %s", bare)
				} else {
					fmt.Fprintf(w, " -l %s -o %s", bare, bare)
				}
				switch {
				case len(f.words) > 0:
					fmt.Fprintf(w, " -x -a '%s'", strings.Join(f.words, " "))
				case f.hosts:
					fmt.Fprint(w, " -x -a '(__gorun_hosts)'")
				case f.value != "":
					fmt.Fprint(w, " -r")
				}
				fmt.Fprintf(w, " -d '%s'\n", clean.Replace(f.usage))
			}
		}
	}
	names := strings.Join(commandNames(app), " ")
	for _, c := range visibleCommands(app) {
		fmt.Fprintf(w, "complete -c gorun -n __fish_use_subcommand -a %s -d '%s'\n", c.Name, clean.Replace(c.Usage))
		specs(visibleFlags(c), "__fish_seen_subcommand_from "+c.Name)
		switch words := argumentWords(app)[c.Name]; {
		case slices.Contains(ofJobs, c.Name):
			fmt.Fprintf(w, "complete -c gorun -n '__fish_seen_subcommand_from %s' -f -a '(%s)'\n", c.Name, listJobNames)
		case words != nil:
			fmt.Fprintf(w, "complete -c gorun -n '__fish_seen_subcommand_from %s' -f -a '%s'\n", c.Name, strings.Join(words, " "))
		}
	}
	specs(app.Flags, "not __fish_seen_subcommand_from "+names)
	fmt.Fprint(w, "complete -c horovodrun -w gorun\n")
}
