package pyenv

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Source says which packages an environment has.
type Source struct {
	Word string // what the user calls it
	Has  string // the packages, in words
	kind kind
	file string // the requirements, or the directory of the project
	text string // what decides which packages those are
}

type kind int

const (
	requirements kind = iota
	locked            // requirements with hashes
	project           // a directory with pyproject.toml and uv.lock
	active            // what is installed here: text has the requirements
)

const what = "name a requirements.txt, a pyproject.toml with its uv.lock, or auto for what is active here"

// Open reads what names the packages: a file of requirements, a project with uv.lock, or "auto". The notes are for the user. ships
// tells that hosts also get the program.
func Open(ctx context.Context, word string, getenv func(string) string, ships bool) (s *Source, notes []string, err error) {
	s = &Source{Word: word}
	if word == "auto" {
		s.kind = active
		notes, err = s.readInstalled(ctx, getenv, ships)
		return s, notes, err
	}
	if s.file, err = filepath.Abs(word); err != nil {
		return nil, nil, err
	}
	s.Has = "what " + s.file + " has"
	info, err := os.Stat(s.file)
	base := filepath.Base(s.file)
	switch {
	case err != nil:
		return nil, nil, wrong(what, "%w", err)
	case base == "pyproject.toml" || base == "uv.lock":
		s.file = filepath.Dir(s.file)
	case info.Mode().IsRegular() && info.Mode()&0o111 == 0:
		if s.text, err = s.read(); strings.Contains(s.text, "--hash=") {
			s.kind = locked
		}
		return s, nil, err
	case !info.IsDir():
		return nil, nil, wrong(what+"; the program names its Python", "%s names no packages", word)
	}
	s.kind = project
	if s.text, err = s.read(); err != nil {
		return nil, nil, wrong("uv lock makes uv.lock; else name a requirements.txt", "%w", err)
	}
	return s, nil, nil
}

// read returns what decides, as it is now.
func (s *Source) read() (text string, err error) {
	switch s.kind {
	case active:
		return s.text, nil
	case project:
		about, err := os.ReadFile(filepath.Join(s.file, "pyproject.toml"))
		lock, lockErr := os.ReadFile(filepath.Join(s.file, "uv.lock"))
		return string(about) + string(lock), cmp.Or(err, lockErr)
	}
	var all strings.Builder
	err = readRequirements(&all, s.file, map[string]bool{})
	return all.String(), err
}

// included is a line that has another file read.
var included = regexp.MustCompile(`^\s*(?:-r|-c|--requirements?|--constraints?)[\s=]*([^\s#]+)`)

// readRequirements adds a file and where it is, the wheels of this machine that it names, and the files that it has read.
func readRequirements(all *strings.Builder, file string, seen map[string]bool) error {
	if seen[file] {
		return nil
	}
	seen[file] = true
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(all, "# %s\n%s\n", file, text)
	for line := range strings.Lines(string(text)) {
		for _, name := range strings.FieldsFunc(line, func(r rune) bool { return unicode.IsSpace(r) || r == '=' }) {
			name = strings.TrimPrefix(name, "file://")
			listWheels(all, name)
			listWheels(all, filepath.Join(filepath.Dir(file), name))
		}
		if m := included.FindStringSubmatch(line); m != nil && !strings.Contains(m[1], "://") {
			other := m[1]
			if !filepath.IsAbs(other) {
				other = filepath.Join(filepath.Dir(file), other)
			}
			if err := readRequirements(all, other, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// listWheels adds which wheels a directory has, or that a file is one: a wheel may be built again with the same version.
func listWheels(all *strings.Builder, at string) {
	wheels, _ := filepath.Glob(filepath.Join(at, "*.whl"))
	if filepath.Ext(at) == ".whl" {
		wheels = []string{at}
	}
	for _, wheel := range wheels {
		if info, err := os.Stat(wheel); err == nil {
			fmt.Fprintln(all, "#", wheel, info.Size(), info.ModTime().UnixNano())
		}
	}
}

//go:embed installed.py
var installed string

const noWheel = "--ship has hosts get a directory; of other sources make a wheel: uv build --wheel"

// readInstalled makes requirements of what the active environment has.
func (s *Source) readInstalled(ctx context.Context, getenv func(string) string, ships bool) (notes []string, err error) {
	dir := getenv("VIRTUAL_ENV")
	if dir == "" {
		dir = getenv("CONDA_PREFIX")
	}
	if dir == "" {
		return nil, wrong("activate one, start gorun by uv run, or name a requirements.txt", "no environment of Python is active here")
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "bin", "python"), "-I", "-c", installed).Output()
	var found struct{ Requirements, Editable, Foreign map[string]string }
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		hint := ""
		if _, gone := os.Stat(filepath.Join(dir, "bin", "python")); gone != nil {
			hint = "the active environment is gone: activate it again, or another one"
		}
		return nil, wrong(hint, "list what %s has: %w", dir, err)
	}
	for _, name := range slices.Sorted(maps.Keys(found.Editable)) {
		if place := found.Editable[name]; ships {
			notes = append(notes, fmt.Sprintf("%s is installed from %s: hosts get that only as a part of the program, and PYTHONPATH says where its modules are", name, place))
		} else {
			found.Foreign[name+" from "+place] = ""
		}
	}
	if foreign := slices.Sorted(maps.Keys(found.Foreign)); len(foreign) > 0 {
		return nil, wrong(noWheel, "%s has what no index has: %s", dir, strings.Join(foreign, ", "))
	}
	for _, line := range slices.Sorted(maps.Keys(found.Requirements)) {
		s.text += line + "\n"
	}
	s.Has = fmt.Sprint("what is active here, packages: ", len(found.Requirements))
	return notes, nil
}
