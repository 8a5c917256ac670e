package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// readConfigFile reads horovodrun's --config-file: the values by section.key, and the keys that mean nothing. "" is no
// file.
func readConfigFile(file string) (values map[string]string, unknown []string, err error) {
	if file == "" {
		return nil, nil, nil
	}
	data, err := readShort(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read config file: %w", err)
	}
	values, unknown, err = parseConfig(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return values, unknown, nil
}

// parseConfig returns the checked content of the file, by section.key, and the sections and keys that horovodrun
// ignores as well.
func parseConfig(data []byte) (values map[string]string, unknown []string, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, nil, fmt.Errorf("parse config file: %w", err)
	}
	values = map[string]string{}
	if len(doc.Content) == 0 {
		return values, nil, nil // nothing but comments
	}
	err = eachPair(doc.Content[0], "", func(section string, node *yaml.Node) error {
		switch {
		case section == "controller":
			return addController(values, node)
		case !slices.ContainsFunc(knobs, func(k knob) bool { return strings.HasPrefix(k.file, section+".") }):
			unknown = append(unknown, strconv.Quote(section))
			return nil
		}
		return eachPair(node, section, func(key string, node *yaml.Node) error {
			name := section + "." + key
			i := slices.IndexFunc(knobs, func(k knob) bool { return k.file == name })
			if i < 0 {
				unknown = append(unknown, strconv.Quote(name))
				return nil
			}
			return addValue(values, knobs[i], node)
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("parse config file: %w", err)
	}
	return values, unknown, nil
}

// eachPair visits a mapping. An empty one may be written as nothing at all.
func eachPair(node *yaml.Node, name string, visit func(key string, value *yaml.Node) error) error {
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		return nil
	case node.Kind != yaml.MappingNode && name == "":
		return errors.New("not a mapping of sections")
	case node.Kind != yaml.MappingNode:
		return fmt.Errorf("line %d: %s is not a section with keys", node.Line, strconv.Quote(name))
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if err := visit(node.Content[i].Value, node.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func addValue(values map[string]string, k knob, node *yaml.Node) error {
	name := k.file
	switch {
	case node.Kind != yaml.ScalarNode:
		return fmt.Errorf("line %d: %s takes one value", node.Line, name)
	case node.Tag == "!!null":
		return nil // as if it were not there
	}
	value := node.Value
	if k.kind == toggle && node.Style == 0 {
		// horovodrun reads YAML 1.1, where these are booleans.
		switch strings.ToLower(value) {
		case "yes", "on":
			value = "true"
		case "no", "off":
			value = "false"
		}
	}
	if k.kind == level {
		value = strings.ToUpper(value) // horovodrun takes it as it is in a file, and so does its engine
	}
	if problem := k.check(value); problem != "" {
		return fmt.Errorf("line %d: %s: %s: %s", node.Line, name, strconv.Quote(node.Value), problem)
	}
	values[name] = value
	return nil
}

func addController(values map[string]string, node *yaml.Node) error {
	name := strings.ToLower(node.Value)
	if node.Kind != yaml.ScalarNode || name != "gloo" && name != "mpi" {
		return fmt.Errorf("line %d: controller is neither gloo nor mpi", node.Line)
	}
	values["controller."+name] = "true"
	return nil
}
