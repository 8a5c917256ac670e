package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// manPage writes the manual page in the language of man.
func manPage(w io.Writer, app *cli.App) {
	fmt.Fprintf(w, ".TH GORUN 1 \"\" \"gorun %s\"\n.SH NAME\ngorun \\- %s\n.SH SYNOPSIS\n", roff(version), roff(app.Usage))
	for i, line := range strings.Split(app.UsageText, "\n") {
		if i > 0 {
			fmt.Fprintln(w, ".br")
		}
		fmt.Fprintln(w, roff(strings.TrimSpace(line)))
	}
	fmt.Fprint(w, ".SH DESCRIPTION\ngorun copies what hosts need of it there over ssh, starts a daemon on each, and runs the program's ranks there.\n"+
		"Called by the name horovodrun it takes that command's place.\n")
	fmt.Fprint(w, ".SH OPTIONS\nOne dash or two; they go before the program.\n")
	for _, peers := range []bool{false, true} {
		if peers {
			fmt.Fprint(w, ".SH OPTIONS OF OTHER LAUNCHERS\nThese are for command lines that were written for them.\n")
		}
		for _, t := range topics {
			if flags := t.flagsOf(app.Flags); t.peer == peers && len(flags) > 0 {
				fmt.Fprintf(w, ".SS %s\n", roff(t.title))
				manFlags(w, flagInfos(flags))
			}
		}
	}
	fmt.Fprint(w, ".SH COMMANDS\n")
	for _, c := range visibleCommands(app) {
		fmt.Fprintf(w, ".SS gorun %s\n%s\n", roff(c.Name), roff(c.Usage))
		manFlags(w, flagInfos(visibleFlags(c)))
	}
	fmt.Fprint(w, ".SH EXIT STATUS\n.nf\n")
	for line := range strings.SplitSeq(exitCodeText(), "\n") {
		fmt.Fprintln(w, roff(line))
	}
	fmt.Fprint(w, ".fi\n.SH FILES\n")
	for _, f := range ownFiles {
		fmt.Fprintf(w, ".TP\n%s\n%s\n", roff(f.path), roff(f.what))
	}
	fmt.Fprint(w, ".SH SEE ALSO\nssh_config(5)\n")
}

// ownFiles are what gorun reads and keeps beside what flags name.
var ownFiles = []struct{ path, what string }{
	{"~/.ssh/config, /etc/ssh/ssh_config", "how hosts are reached"},
	{"~/.ssh/known_hosts, /etc/ssh/ssh_known_hosts", "keys of hosts; a host that is new is added to the first"},
	{"~/.cache/gorun", "on hosts: the gorun that launchers have brought (XDG_CACHE_HOME; directories in /tmp, /var/tmp and /dev/shm where that is no place for programs)"},
	{"~/.local/state/gorun/jobs", "state and output of detached jobs (XDG_STATE_HOME)"},
	{"~/.local/state/gorun/heirs", "of resident daemons: which launchers of detached jobs they have agreed to (XDG_STATE_HOME)"},
	{"~/.local/state/gorun/audit", "of resident daemons: what launchers have asked them for (XDG_STATE_HOME)"},
	{"~/.local/state/gorun/vmtools", "on virtual machines: registrations with vSphere that are not ended yet (XDG_STATE_HOME)"},
}

func manFlags(w io.Writer, infos []flagInfo) {
	for _, f := range infos {
		names := make([]string, len(f.names))
		for i, n := range f.names {
			names[i] = "\\fB" + roff(n) + "\\fR"
		}
		value := ""
		if f.value != "" {
			value = " \\fI" + roff(f.value) + "\\fR"
		}
		fmt.Fprintf(w, ".TP\n%s%s\n%s", strings.Join(names, ", "), value, roff(f.usage))
		if f.preset != "" {
			fmt.Fprintf(w, " (default: %s)", roff(f.preset))
		}
		fmt.Fprintln(w)
	}
}

// roff escapes what man would take for a command, and what groff by itself would not read as UTF-8.
func roff(s string) string {
	s = strings.NewReplacer("\\", "\\e", "-", "\\-").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = "\\&" + s
	}
	var out strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, "\\[u%04X]", r)
		}
	}
	return out.String()
}

// manCommand prints the manual page.
func manCommand(newApp func() *cli.App) *cli.Command {
	return &cli.Command{
		Name:      "man",
		Usage:     "print the manual page",
		UsageText: "gorun man | man -l -",
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &usageError{errors.New("man takes no arguments"), "gorun man | man -l -"}
			}
			manPage(c.App.Writer, newApp())
			return nil
		},
	}
}
