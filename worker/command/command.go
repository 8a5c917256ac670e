// Package command implements what hosts do for gorun: the command lines that launchers and resident daemons use to
// start gorun's own processes there (supervisor, daemon, relay, sweep) and ranks of its benchmark, and to query the
// host. They are part of both gorun and gorund, the program that ssh uploads to hosts.
package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gorun/topology"
	"gorun/topology/doctor"
	"gorun/topology/measure"
	"gorun/topology/picture"
	"gorun/topology/probe"
	"gorun/worker/cached"
)

// Process is the process that a command line started.
type Process struct {
	Version string
	Env     []string
}

// WithRDMA makes a worker prefer the daemon that can use RDMA. "=" follows, and perhaps the path of a library.
const WithRDMA = "--rdma"

// ExitStatus ends the process with a code and without a message.
type ExitStatus int

func (e ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Parse returns the action of a command line, nil if it is not one of this package. It does without a flag parser:
// setting that up for all commands of gorun takes longer than everything a supervisor does.
func (p Process) Parse(words []string) func(context.Context) error {
	switch command := strings.Join(words, " "); {
	case command == "topo --facts":
		return func(ctx context.Context) error { return writeTopology(ctx, os.Stdout) }
	case command == "topo --agent":
		return func(ctx context.Context) error { return measure.Agent(ctx, os.Stdin, os.Stdout) }
	case command == "doctor --facts":
		return func(ctx context.Context) error { return p.writeFacts(ctx, os.Stdout) }
	case len(words) == 3 && words[0] == "clean" && words[1] == "--programs":
		return func(context.Context) error { return p.cleanPrograms(os.Stdout, words[2], false) }
	case len(words) == 4 && words[0] == "clean" && words[1] == "--programs" && words[3] == "--remove":
		return func(context.Context) error { return p.cleanPrograms(os.Stdout, words[2], true) }
	}
	return p.worker(words)
}

func (p Process) getenv(name string) string {
	for _, variable := range p.Env {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}

// writeTopology writes the input of picture.ParseHost.
func writeTopology(ctx context.Context, to io.Writer) error {
	host, err := probe.Probe(ctx, "/")
	if err != nil {
		return err
	}
	host.Name = host.Hostname
	text, err := picture.JSON(picture.Cluster{Hosts: []topology.Host{host}})
	if err != nil {
		return err
	}
	_, err = to.Write(text)
	return err
}

// writeFacts writes what doctor needs, as JSON.
func (p Process) writeFacts(ctx context.Context, to io.Writer) error {
	facts, err := doctor.Gather(ctx, p.Version)
	if err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(facts)
}

// cleanPrograms removes uploaded programs that were not used for a time, or finds them, and writes all as JSON.
func (p Process) cleanPrograms(to io.Writer, unused string, remove bool) error {
	d, err := time.ParseDuration(unused)
	if err != nil {
		return fmt.Errorf("clean programs: %w", err)
	}
	all := cached.Clean(cached.Places(p.getenv), d, time.Now(), remove)
	return json.NewEncoder(to).Encode(all)
}

// StateDir returns the directory for the user's persistent state of gorun. Hosts may share it.
func StateDir(getenv func(name string) string) (string, error) {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "gorun"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find home: %w", err)
	}
	return filepath.Join(home, ".local", "state", "gorun"), nil
}
