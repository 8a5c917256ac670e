package main

import (
	"fmt"
	"io"
	"os"

	"gorun/launcher/hosts"
)

// longest is more than any file of hosts, settings or a key needs; what is longer is another file, or a device.
const longest = 4 << 20

// readShort reads a file that a user has named, and no more of it than it takes to see that it is too long.
func readShort(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longest+1))
	if len(text) > longest {
		return nil, fmt.Errorf("%s is longer than %d MiB", name, longest>>20)
	}
	return text, err
}

// surroundings is where a scheduler's allocation is found.
func surroundings() hosts.Surroundings {
	return hosts.Surroundings{Getenv: os.Getenv, ReadFile: readShort}
}
