package main

import (
	"errors"
	"fmt"
	"maps"
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
	var doc map[string]any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, nil, fmt.Errorf("parse config file: %w", err)
	}
	values = map[string]string{}
	for _, section := range slices.Sorted(maps.Keys(doc)) {
		keys, isMap := doc[section].(map[string]any)
		switch {
		case section == "controller":
			name := strings.ToLower(fmt.Sprint(doc[section]))
			if name != "gloo" && name != "mpi" {
				return nil, nil, errors.New("parse config file: controller is neither gloo nor mpi")
			}
			values["controller."+name] = "true"
		case !slices.ContainsFunc(knobs, func(k knob) bool { return strings.HasPrefix(k.file, section+".") }):
			unknown = append(unknown, strconv.Quote(section))
		case !isMap && doc[section] != nil: // an empty one may be written as nothing at all
			return nil, nil, fmt.Errorf("parse config file: %q is not a section with keys", section)
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			name := section + "." + key
			if i := slices.IndexFunc(knobs, func(k knob) bool { return k.file == name }); i >= 0 {
				err = addValue(values, knobs[i], keys[key])
			} else if !slices.Contains(unknown, strconv.Quote(section)) {
				unknown = append(unknown, strconv.Quote(name))
			}
			if err != nil {
				return nil, nil, fmt.Errorf("parse config file: %s: %w", name, err)
			}
		}
	}
	return values, unknown, nil
}

func addValue(values map[string]string, k knob, value any) error {
	text := fmt.Sprint(value)
	switch value.(type) {
	case nil:
		return nil // as if it were not there
	case []any, map[string]any:
		return errors.New("takes one value")
	}
	switch k.kind {
	case toggle: // horovodrun reads YAML 1.1, where these are booleans
		text = strings.NewReplacer("yes", "true", "on", "true", "no", "false", "off", "false").Replace(strings.ToLower(text))
	case level:
		text = strings.ToUpper(text) // horovodrun takes it as it is in a file, and so does its engine
	}
	if problem := k.check(text); problem != "" {
		return fmt.Errorf("%q: %s", fmt.Sprint(value), problem)
	}
	values[k.file] = text
	return nil
}
