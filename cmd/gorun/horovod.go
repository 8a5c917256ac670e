package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// horovodTable binds the flags of horovodrun that do something of their own.
func (o *jobFlags) horovodTable() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "check-build", Destination: &o.checkBuild, Aliases: []string{"cb"},
			Usage: "print what this binary has, as horovodrun does", Hidden: true},
		&cli.PathFlag{Name: "config-file", Destination: &o.configFile,
			Usage: "read horovodrun's engine flags from a YAML `FILE`; flags given here win"},
		&cli.StringSliceFlag{Name: "network-interfaces", Destination: &o.nics, Aliases: []string{"iface"}, Category: "network",
			Usage: "NICs between the hosts: a `LIST` of names, drivers or networks (eth0,10.0.0.0/8)", DefaultText: "those on the path to the hosts"},
		&cli.StringSliceFlag{Name: "network-interface", Destination: &o.nic,
			Usage: "as --network-interfaces, with one `NIC`, given once for each", Hidden: true},
	}
}

// settings are the knobs that are set, and what follows from it.
type settings struct {
	env  []string // for the ranks
	idle []string // flags without effect, with the reason
}

// readSettings gathers the knobs: the command line wins over the --config-file.
func readSettings(o *jobFlags) (settings, error) {
	var s settings
	file, unknown, err := readConfigFile(o.configFile)
	if err != nil {
		return s, &usageError{err, "the keys are those of horovodrun's --config-file"}
	}
	if err := o.atMostOne(o.switches["gloo"], o.switches["mpi"], o.switches["jsrun"]); err != nil {
		return s, err
	}
	values := map[string]string{}
	for _, k := range knobs {
		value, ok, err := k.given(o)
		if err != nil {
			return s, err
		}
		if !ok {
			value, ok = file[k.file]
		}
		if ok {
			values[k.names[0]] = value
		}
	}
	reasons := map[string][]string{}
	var order []string
	for _, k := range knobs {
		value, ok := values[k.names[0]]
		if !ok {
			continue
		}
		if beside(values, k.needs) {
			if v := k.variable(value); v != "" {
				s.env = append(s.env, v)
			}
		}
		if why := k.without(values, o.noShim); why != "" {
			if reasons[why] == nil {
				order = append(order, why)
			}
			reasons[why] = append(reasons[why], "--"+k.names[0])
		}
	}
	for _, why := range order {
		s.idle = append(s.idle, fmt.Sprintf("%s (%s)", strings.Join(reasons[why], " "), why))
	}
	if len(unknown) > 0 {
		s.idle = append(s.idle, fmt.Sprintf("%s in %s (horovodrun has no such key)", strings.Join(unknown, " "), o.configFile))
	}
	return s, nil
}
