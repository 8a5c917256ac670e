package main

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
)

// invocation holds what the command lines of all commands share.
type invocation struct {
	command   string   // "" for a launch
	args      []string // behind the flags
	out, errs io.Writer
	set       []cli.Flag     // that the user gave
	names     map[any]string // of those, by the addresses of the fields that they fill
}

// read fills the invocation from a parsed command line.
func (v *invocation) read(c *cli.Context) {
	v.command, v.args, v.out, v.errs = c.Command.Name, c.Args().Slice(), c.App.Writer, c.App.ErrWriter
	v.names = map[any]string{}
	for _, f := range c.Command.Flags {
		if field, name := fieldOf(f), f.Names()[0]; field != nil && c.IsSet(name) {
			v.set, v.names[field] = append(v.set, f), name
		}
	}
}

// given reports whether the user gave the flag that fills the field at this address.
func (v *invocation) given(field any) bool { return v.names[field] != "" }

// atMostOne refuses flags that mean the same in different words, by the addresses of their fields.
func (v *invocation) atMostOne(fields ...any) error {
	first := ""
	for _, field := range fields {
		switch {
		case !v.given(field):
		case first != "":
			return &usageError{exclusive(first, v.names[field]), ""}
		default:
			first = v.names[field]
		}
	}
	return nil
}

// fieldOf returns the address of the field that a flag fills, nil if it fills none.
func fieldOf(f cli.Flag) any {
	if g, ok := f.(*cli.GenericFlag); ok {
		switch value := g.Value.(type) {
		case *seconds:
			return (*time.Duration)(value)
		case *lease:
			return (*time.Duration)(value)
		}
		return g.Value
	}
	if to := reflect.ValueOf(f).Elem().FieldByName("Destination"); !to.IsNil() {
		return to.Interface()
	}
	return nil
}

// toHosts returns the flags of a command that asks hosts: its own, those that name and reach hosts, and others of launches.
func (o *jobFlags) toHosts(own []cli.Flag, others ...string) []cli.Flag {
	shared := pick(o.table(), append(others, "hosts", "hostfile", "ssh-port", "ssh-identity-file", "ssh-config", "ssh-command", "start-timeout")...)
	return append(own, reworded(shared, map[string]string{"start-timeout": "give up if a host has not answered after this `TIME`"})...)
}

// noArgs refuses arguments behind the flags of such a command.
func (v *invocation) noArgs() error {
	if len(v.args) == 0 {
		return nil
	}
	return &usageError{fmt.Errorf("unexpected argument %s", v.args[0]), "gorun " + v.command + " -H host1,host2"}
}

// pick returns the flags with these names, for a command that shares them with launches.
func pick(flags []cli.Flag, names ...string) []cli.Flag {
	return slices.DeleteFunc(flags, func(f cli.Flag) bool { return !slices.Contains(names, f.Names()[0]) })
}
