package facts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strconv"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// Parse reads a file. Its errors begin with the line, where there is one.
func Parse(text []byte) (*File, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("more than %d bytes", MaxFile)
	}
	var doc, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, at(&more, errors.New("a second document: all must be in one"))
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	f := &File{hosts: map[string]host{}}
	if len(doc.Content) == 0 {
		return f, nil // nothing but comments
	}
	return f, fields(doc.Content[0], "the file", func(key string, value *yaml.Node) error {
		switch key {
		case "hosts":
			return each(value, "hosts", func(name, n *yaml.Node) error {
				h, err := parseHost(n)
				known := bare(name.Value)
				if known == "" {
					return at(name, errors.New("a host needs a name"))
				}
				if _, twice := f.hosts[known]; twice {
					return at(name, fmt.Errorf("hosts names %q twice, by different users", known))
				}
				f.hosts[known] = h
				return err
			})
		case "edges":
			return f.parseEdges(value)
		}
		return errUnknown
	})
}

func parseHost(n *yaml.Node) (host, error) {
	h := host{labels: map[string]string{}}
	err := fields(n, "a host", func(key string, value *yaml.Node) error {
		switch key {
		case "esxi", "rack", "zone":
			var err error
			h.labels[key], err = label(value)
			return err
		case "by":
			var err error
			h.by, err = label(value)
			return err
		case "session":
			var err error
			h.session, err = label(value)
			return err
		case "nics":
			return each(value, "nics", func(name, n *yaml.Node) error {
				d, err := parseDevice(n, true)
				if err != nil {
					return err
				}
				d.line = name.Line
				d.name, err = label(name)
				h.nics = append(h.nics, d)
				return err
			})
		case "gpus":
			return each(value, "gpus", func(name, n *yaml.Node) error {
				d, err := parseDevice(n, false)
				if err != nil {
					return err
				}
				d.line = name.Line
				d.index, err = integer(name, 0, 1023)
				h.gpus = append(h.gpus, d)
				return err
			})
		}
		return errUnknown
	})
	return h, err
}

func parseDevice(n *yaml.Node, isNIC bool) (device, error) {
	var d device
	err := fields(n, "a device", func(key string, value *yaml.Node) error {
		var err error
		switch {
		case key == "node":
			var node int
			node, err = integer(value, -1, 1023)
			d.node = &node
		case key == "speed_mbit" && isNIC:
			d.speed, err = integer(value, 1, 100_000_000)
		default:
			err = errUnknown
		}
		return err
	})
	return d, err
}

func (f *File) parseEdges(list *yaml.Node) error {
	if list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil
	}
	if list.Kind != yaml.SequenceNode {
		return at(list, errors.New("edges is not a list"))
	}
	for _, n := range list.Content {
		var e edge
		err := fields(n, "an edge", func(key string, value *yaml.Node) (err error) {
			switch key {
			case "from":
				e.from, err = label(value)
				e.from = bare(e.from)
			case "to":
				e.to, err = label(value)
				e.to = bare(e.to)
			case "mbit":
				e.bandwidth, err = positive(value, 1e8)
				e.bandwidth *= 1e6 / 8
			case "rtt_us":
				e.rtt, err = positive(value, 1e9)
				e.rtt /= 1e6
			case "by":
				if e.inJob = value.Value == "job"; !e.inJob && value.Value != "probe" {
					err = at(value, fmt.Errorf("an edge is measured by job or probe, not by %q", value.Value))
				}
			case "blocked":
				if e.blocked = value.Value == "true"; !e.blocked && value.Value != "false" {
					err = at(value, fmt.Errorf("blocked is true or false, not %q", value.Value))
				}
			case "net":
				network, wrong := netip.ParsePrefix(value.Value)
				if wrong != nil {
					err = at(value, fmt.Errorf("%q is not a network such as 10.0.0.0/24", value.Value))
				}
				e.rail = network.Masked().String()
			default:
				err = errUnknown
			}
			return err
		})
		if err != nil {
			return err
		}
		if e.from == "" || e.to == "" || e.from == e.to {
			return at(n, errors.New("an edge needs from and to, which differ"))
		}
		if e.bandwidth == 0 && e.rtt == 0 && !e.blocked {
			return at(n, errors.New("an edge needs mbit, rtt_us or blocked, or it says nothing"))
		}
		f.edges = append(f.edges, e)
	}
	return nil
}

var errUnknown = errors.New("unknown key")

func at(n *yaml.Node, err error) error { return fmt.Errorf("line %d: %w", n.Line, err) }

// each visits a mapping, which may be empty. A repeated key is an error.
func each(n *yaml.Node, what string, visit func(key, value *yaml.Node) error) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return at(n, fmt.Errorf("%s is not a mapping", what))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || seen[key.Value] {
			return at(key, fmt.Errorf("%s names %q twice, or it is not a name", what, key.Value))
		}
		seen[key.Value] = true
		if err := visit(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// fields is each for a mapping with known keys.
func fields(n *yaml.Node, what string, visit func(key string, value *yaml.Node) error) error {
	return each(n, what, func(key, value *yaml.Node) error {
		err := visit(key.Value, value)
		if errors.Is(err, errUnknown) && err == errUnknown {
			return at(key, fmt.Errorf("%s has no %q", what, key.Value))
		}
		return err
	})
}

const longest = 253 // of a label, as of a host's name

func label(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Value == "" || len(n.Value) > longest {
		return "", at(n, fmt.Errorf("not a name of 1 to %d characters", longest))
	}
	for _, r := range n.Value {
		if !unicode.IsPrint(r) {
			return "", at(n, fmt.Errorf("character %q in a name", r))
		}
	}
	return n.Value, nil
}

func integer(n *yaml.Node, least, most int) (int, error) {
	i, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || i < least || i > most {
		return 0, at(n, fmt.Errorf("%q is not a number from %d to %d", n.Value, least, most))
	}
	return i, nil
}

func positive(n *yaml.Node, most float64) (float64, error) {
	x, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || math.IsNaN(x) || x <= 0 || x > most {
		return 0, at(n, fmt.Errorf("%q is not a number above 0, up to %g", n.Value, most))
	}
	return x, nil
}
