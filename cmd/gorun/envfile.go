package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

var envLine = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// readEnvFile reads variables from a file such as .env: a line NAME=VALUE each. A value may stand in quotes; "export" before a
// name, empty lines and lines that begin with # have no meaning. What others write differently, such as $OTHER within a value,
// is part of the value.
func readEnvFile(name string) (env []string, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--env-file: %w", err), ""}
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := envLine.FindStringSubmatch(line)
		if m == nil || strings.ContainsRune(line, 0) { // the line may hold a secret
			return nil, &usageError{fmt.Errorf("--env-file %s: line %d is not NAME=VALUE", name, number), ""}
		}
		value := m[2]
		if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		env = append(env, m[1]+"="+value)
	}
	return env, nil
}
