package facts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// document is a file as YAML has it. Values that are wrong are errors, to which the library adds the line.
type document struct {
	Hosts map[label]host `yaml:"hosts"`
	Edges []edge         `yaml:"edges"`
}

// host is the facts about a host: its labels, and who knows them, "" for the author of the file.
type host struct {
	ESXi    label            `yaml:"esxi"`
	Rack    label            `yaml:"rack"`
	Zone    label            `yaml:"zone"`
	By      label            `yaml:"by"`
	Session label            `yaml:"session"`
	NICs    map[label]device `yaml:"nics"`
	GPUs    map[int]device   `yaml:"gpus"`
}

// device is the facts about a NIC or GPU.
type device struct {
	Node  *int `yaml:"node"`
	Speed *int `yaml:"speed_mbit"` // of a NIC
	line  int
}

// edge is a measurement between two hosts.
type edge struct {
	From    label        `yaml:"from"`
	To      label        `yaml:"to"`
	Mbit    *float64     `yaml:"mbit"`
	RTT     *float64     `yaml:"rtt_us"`
	By      string       `yaml:"by"`
	Blocked bool         `yaml:"blocked"`
	Net     netip.Prefix `yaml:"net"`
}

// label is a name that a terminal can show.
type label string

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *label) UnmarshalYAML(n *yaml.Node) error {
	const longest = 253 // as of a host's name
	if n.Kind != yaml.ScalarNode || n.Value == "" || len(n.Value) > longest {
		return fmt.Errorf("not a name of 1 to %d characters", longest)
	}
	for _, r := range n.Value {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("character %q in a name", r)
		}
	}
	*l = label(n.Value)
	return nil
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *device) UnmarshalYAML(n *yaml.Node) error {
	type plain device
	d.line = n.Line
	err := n.Load((*plain)(d), yaml.WithKnownFields())
	switch {
	case err != nil:
		return err
	case d.Node != nil && (*d.Node < -1 || *d.Node > 1023):
		return fmt.Errorf("node %d is not a number from -1 to 1023", *d.Node)
	case d.Speed != nil && (*d.Speed < 1 || *d.Speed > 100_000_000):
		return fmt.Errorf("speed_mbit %d is not a number from 1 to 100000000", *d.Speed)
	}
	return nil
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (e *edge) UnmarshalYAML(n *yaml.Node) error {
	type plain edge
	err := n.Load((*plain)(e), yaml.WithKnownFields())
	from, to := bare(string(e.From)), bare(string(e.To))
	isWrong := func(x *float64, most float64) bool { return x != nil && !(*x > 0 && *x <= most) }
	switch {
	case err != nil:
		return err
	case from == "" || to == "" || from == to:
		return errors.New("an edge needs from and to, which differ")
	case isWrong(e.Mbit, 1e8):
		return errors.New("mbit is not a number above 0, up to 1e8")
	case isWrong(e.RTT, 1e9):
		return errors.New("rtt_us is not a number above 0, up to 1e9")
	case e.Mbit == nil && e.RTT == nil && !e.Blocked:
		return errors.New("an edge needs mbit, rtt_us or blocked, or it says nothing")
	case e.By != "" && e.By != "job" && e.By != "probe":
		return fmt.Errorf("an edge is measured by job or probe, not by %q", e.By)
	}
	return nil
}

// Parse reads a file. Its errors begin with the line, where there is one.
func Parse(text []byte) (*File, error) {
	f := &File{hosts: map[string]host{}}
	if len(text) > MaxFile {
		return nil, fmt.Errorf("more than %d bytes", MaxFile)
	}
	var doc document
	var more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) { // nothing but comments
		return nil, mistake(err)
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, fmt.Errorf("line %d: a second document: all must be in one", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, mistake(err)
	}
	for name, h := range doc.Hosts {
		known := bare(string(name))
		if _, twice := f.hosts[known]; twice || known == "" {
			return nil, fmt.Errorf("hosts names %q twice, by different users, or without a name", known)
		}
		for index, d := range h.GPUs {
			if d.Speed != nil || index < 0 {
				return nil, fmt.Errorf("line %d: a GPU has a number and no speed_mbit", d.line)
			}
		}
		f.hosts[known] = h
	}
	f.edges = doc.Edges
	return f, nil
}

// mistake is the first error of the library, without the names of Go's types.
func mistake(err error) error {
	first, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return err
	}
	text, _, _ := strings.Cut(first.Message, " in type ")
	text, _, _ = strings.Cut(text, " into ")
	return fmt.Errorf("line %d: %s", first.Mark.Line, strings.Replace(text, "cannot construct !!", "unexpected ", 1))
}
