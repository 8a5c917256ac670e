// Package command is what a host is asked to do: the command lines by which launchers and standing daemons start
// gorun's own processes there (supervisor, daemon, relay, sweep), ranks of its benchmark, and what answers their questions
// about the host. Both gorun and gorund, which is brought to hosts by ssh, know them.
package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gorun/topology"
	"gorun/topology/doctor"
	"gorun/topology/measure"
	"gorun/topology/picture"
	"gorun/topology/probe"
)

// Process is the one that was started by a command line.
type Process struct {
	Version string
	Env     []string
	Program []byte // what hosts are to run; nil if it is the binary of this process
}

// ExitStatus ends the process with a code and without a word.
type ExitStatus int

func (e ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Parse returns what a command line asks for, nil if it is none of those here. They are known without a parser of flags:
// to set that up for all commands of gorun takes longer than all that a supervisor has to do.
func (p Process) Parse(words []string) func(context.Context) error {
	switch command := strings.Join(words, " "); {
	case command == "topo --facts":
		return func(ctx context.Context) error { return tellTopology(ctx, os.Stdout) }
	case command == "topo --agent":
		return func(ctx context.Context) error { return measure.Agent(ctx, os.Stdin, os.Stdout) }
	case command == "doctor --facts":
		return func(ctx context.Context) error { return p.tellFacts(ctx, os.Stdout) }
	case len(words) == 5 && words[0] == "doctor" && words[1] == "--path" && words[3] == "--bytes":
		return func(ctx context.Context) error { return tellPath(ctx, os.Stdout, words[2], words[4]) }
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

// tellTopology writes what picture.ParseHost reads.
func tellTopology(ctx context.Context, to io.Writer) error {
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

// tellFacts writes what a doctor wants to know, as JSON.
func (p Process) tellFacts(ctx context.Context, to io.Writer) error {
	facts, err := doctor.Gather(ctx, p.Version)
	if err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(facts)
}

// tellPath writes how large packets to an address may be, of so many bytes at most.
func tellPath(ctx context.Context, to io.Writer, address, bytes string) error {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("probe path: %w", err)
	}
	most, err := strconv.Atoi(bytes)
	if err != nil {
		return fmt.Errorf("probe path: %w", err)
	}
	arrive, err := measure.Path(ctx, addr, most)
	if err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(arrive)
}

// StateDir is where the user's programs of gorun keep what outlives them. Hosts may share it.
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
