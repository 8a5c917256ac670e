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
	section := func(title string, write func(w io.Writer)) {
		var page strings.Builder
		write(&page)
		_, text, _ := strings.Cut(page.String(), "\n\n") // without the title
		fmt.Fprintf(w, ".SH %s\n.nf\n", roff(strings.ToUpper(title)))
		for line := range strings.Lines(text) {
			fmt.Fprint(w, roff(line))
		}
		fmt.Fprintln(w, ".fi")
	}
	for _, t := range topics {
		section(t.title, func(w io.Writer) { t.write(w, app.Flags) })
	}
	for _, c := range visibleCommands(app) {
		section("gorun "+c.Name, func(w io.Writer) { commandHelp(w, c) })
	}
	fmt.Fprint(w, ".SH FILES\n")
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
func manCommand() *cli.Command {
	return &cli.Command{
		Name:      "man",
		Usage:     "print the manual page",
		UsageText: "gorun man | man -l -",
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &usageError{errors.New("man takes no arguments"), "gorun man | man -l -"}
			}
			manPage(c.App.Writer, c.App)
			return nil
		},
	}
}
