package main

import (
	"cmp"
	"fmt"

	"github.com/urfave/cli/v2"
)

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

// commandHelp is helpTemplate for a command.
const commandHelp = `{{.HelpName}} - {{.Usage}}

Usage:
  {{.UsageText}}

Flags (one dash or two):
{{range .VisibleFlags}}  {{.}}
{{end}}
{{.Description}}
`

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
