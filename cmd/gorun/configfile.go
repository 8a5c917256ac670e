package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
	var doc map[string]yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, nil, fmt.Errorf("parse config file: %w", err)
	}
	values = map[string]string{}
	for _, section := range slices.Sorted(maps.Keys(doc)) {
		node, keys := doc[section], map[string]yaml.Node{}
		isMap := node.Decode(&keys) == nil // an empty section may be written as nothing at all
		switch {
		case section == "controller":
			name := strings.ToLower(node.Value)
			if name != "gloo" && name != "mpi" {
				return nil, nil, fmt.Errorf("parse config file: line %d: controller is neither gloo nor mpi", node.Line)
			}
			values["controller."+name] = "true"
		case !slices.ContainsFunc(knobs, func(k knob) bool { return strings.HasPrefix(k.file, section+".") }):
			unknown = append(unknown, strconv.Quote(section))
		case !isMap:
			return nil, nil, fmt.Errorf("parse config file: line %d: %q is not a section with keys", node.Line, section)
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			name, node := section+"."+key, keys[key]
			if i := slices.IndexFunc(knobs, func(k knob) bool { return k.file == name }); i >= 0 {
				err = addValue(values, knobs[i], &node)
			} else if !slices.Contains(unknown, strconv.Quote(section)) {
				unknown = append(unknown, strconv.Quote(name))
			}
			if err != nil {
				return nil, nil, fmt.Errorf("parse config file: line %d: %s: %w", node.Line, name, err)
			}
		}
	}
	return values, unknown, nil
}

func addValue(values map[string]string, k knob, node *yaml.Node) error {
	var value any
	if err := node.Decode(&value); err != nil {
		return err
	}
	text := fmt.Sprint(value)
	switch value.(type) {
	case nil:
		return nil // as if it were not there
	case []any, map[string]any:
		return errors.New("takes one value")
	case time.Time: // the name of a file that YAML takes for a date
		text = cmp.Or(node.Alias, node).Value
	}
	switch k.kind {
	case toggle: // horovodrun reads YAML 1.1, where these are booleans
		text = strings.NewReplacer("yes", "true", "on", "true", "no", "false", "off", "false").Replace(strings.ToLower(text))
	case level:
		text = strings.ToUpper(text) // horovodrun takes it as it is in a file, and so does its engine
	}
	if problem := k.check(text); problem != "" {
		return fmt.Errorf("%q: %s", text, problem)
	}
	values[k.file] = text
	return nil
}
