package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// everyday are the flags that gorun --help shows, each with a meaning that fits on its line.
var everyday = []struct{ name, value, meaning string }{
	{"np", "-np N", "start N ranks (default: one for every slot)"},
	{"hosts", "-H LIST", "hosts and slots: host1:2,user@host2:4,node[01-16]:8"},
	{"hostfile", "--hostfile FILE", "read the hosts from FILE, a line each: host slots=N"},
	{"x", "-x NAME=VALUE", "set a variable for the ranks, or pass NAME on"},
	{"gpus", "--gpus auto", "give each rank a GPU of its host"},
	{"min-np", "--min-np N", "elastic: go on with as few as N ranks"},
	{"output-filename", "--output-filename DIR", "also write each rank's output to a file"},
	{"timeout", "--timeout TIME", "end the job after this time: 90, 10m, 2h"},
	{"detach", "--detach", "return when the ranks run; see gorun logs"},
	{"dry-run", "--dry-run", "show what would run where, and start nothing"},
}

// rare are commands that few people type. gorun help has no room for them; topics and the reference do.
var rare = []string{"drain", "man", "rsh-agent", "stacks"}

// mainHelp is gorun --help: what fits on a screen and a half, and where the rest is. It takes the commands beside the
// app, which has none when its arguments start a job.
func mainHelp(w io.Writer, app *cli.App, commands []*cli.Command) {
	fmt.Fprintf(w, "%s - %s\n\nUsage: gorun [flags] program [arguments]\n       gorun command [flags]\n\nFlags that most people need (they go before the program):\n", app.Name, app.Usage)
	for _, f := range everyday {
		fmt.Fprintf(w, "  %-*s%s\n", helpColumn-2, f.value, f.meaning)
	}
	fmt.Fprint(w, "\nCommands (gorun COMMAND --help explains one):\n")
	for _, c := range commands {
		if c.Name != "help" && !c.Hidden && !slices.Contains(rare, c.Name) {
			fmt.Fprintf(w, "  %-*s%s\n", 14-2, c.Name, c.Usage)
		}
	}
	fmt.Fprintln(w)
	wrap(w, "All flags: gorun help flags. gorun help TOPIC: "+strings.Join(topicNames(), ", ")+".", 0, 0)
}

// commandHelp is the help of a command.
func commandHelp(w io.Writer, c *cli.Command) {
	fmt.Fprintf(w, "gorun %s - %s\n\nUsage:\n", c.Name, c.Usage)
	usage := cmp.Or(c.UsageText, strings.TrimSpace("gorun "+c.Name+" "+c.ArgsUsage))
	wrap(w, usage, 2, 2+len("gorun "+c.Name+" "))
	if c.Description != "" {
		fmt.Fprintln(w)
		paragraphs(w, c.Description)
	}
	own, shared := ownFlags(visibleFlags(c))
	fmt.Fprint(w, "\nFlags (one dash or two):\n")
	writeFlags(w, append(own, cli.HelpFlag))
	for _, t := range topics {
		if flags := t.flagsOf(shared); len(flags) > 0 {
			fmt.Fprintf(w, "\n%s:\n", t.title)
			writeFlags(w, flags)
		}
	}
}

// ownFlags separates the flags of a command from the ones that it shares with launches, which have a topic.
func ownFlags(flags []cli.Flag) (own, shared []cli.Flag) {
	for _, f := range flags {
		switch {
		case f == cli.HelpFlag:
		case *category(f) == "":
			own = append(own, f)
		default:
			shared = append(shared, f)
		}
	}
	return own, shared
}

func helpCommand() *cli.Command {
	return &cli.Command{Name: "help", Usage: "explain a command or a topic: gorun help elastic", UsageText: "gorun help [COMMAND | TOPIC | flags]",
		Description: "Topics: " + strings.Join(topicNames(), ", ") + ".",
		Action: func(c *cli.Context) error {
			name := c.Args().First()
			if name == "" {
				return cli.ShowAppHelp(c)
			}
			if command := c.App.Command(name); command != nil {
				commandHelp(c.App.Writer, command)
				return nil
			}
			if name == "flags" {
				allFlags(c.App.Writer, c.App.Flags)
				return nil
			}
			if t := findTopic(name); t != nil {
				t.write(c.App.Writer, c.App.Flags)
				return nil
			}
			return &usageError{fmt.Errorf("help: there is no command or topic %s", name), unknownHelp(name, c.App.Commands)}
		}}
}

// unknownHelp returns what may have been meant, or what there is.
func unknownHelp(name string, commands []*cli.Command) string {
	if meant := commandsLike(name, commands); len(meant) > 0 {
		return "gorun help " + meant[0]
	}
	for _, t := range topicNames() {
		if typos(name, t) <= min(2, len(name)/3) {
			return "gorun help " + t
		}
	}
	return "gorun help; to run a program of that name: gorun -np N help …"
}

// helpWidth is how many columns help has, and helpColumn where the meaning of a flag begins.
const (
	helpWidth  = 80
	helpColumn = 24
)

// wrap writes words in lines: the first line is indented by first, the others by rest. Spaces
// within a line stay as they are.
func wrap(w io.Writer, text string, first, rest int) {
	line, indent := "", first
	for word := range strings.SplitAfterSeq(text, " ") {
		if line != "" && indent+utf8.RuneCountInString(line+strings.TrimRight(word, " ")) > helpWidth {
			fmt.Fprintf(w, "%*s%s\n", indent, "", strings.TrimRight(line, " "))
			line, indent = "", rest
		}
		line += word
	}
	fmt.Fprintf(w, "%*s%s\n", indent, "", strings.TrimRight(line, " "))
}

// paragraphs writes a text: lines that begin with a space stay as they are.
func paragraphs(w io.Writer, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, " ") {
			fmt.Fprintln(w, line)
		} else {
			wrap(w, line, 0, 0)
		}
	}
}
