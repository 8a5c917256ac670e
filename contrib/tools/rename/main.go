// Command rename gives the Go module another name:
//
//	rename example.org/gorun
//
// In the module that it is run in, and in those below it, it changes the module lines of go.mod, also where a document
// shows one, and the import paths of the module's packages in sources and documents. Other names, such as paths of
// files and of the Python package, stay as they are.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: rename MODULE")
		os.Exit(2)
	}
	n, err := rename(".", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename: error:", err)
		os.Exit(1)
	}
	fmt.Printf("%d files name the module %s now\n", n, os.Args[1])
}

var modulePath = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`)

// rename changes the files below root and returns how many.
func rename(root, to string) (n int, err error) {
	if !modulePath.MatchString(to) {
		return 0, fmt.Errorf("bad module path %q: use one like example.org/gorun", to)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(mod), "\n")
	from, ok := strings.CutPrefix(line, "module ")
	if !ok {
		return 0, errors.New("go.mod does not begin with the module's name")
	}
	tops, err := topDirectories(root)
	if err != nil {
		return 0, err
	}
	imports := importsOf(from, tops)
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if path != root && (e.Name() == ".git" || slices.Contains([]string{"bin", "build"}, e.Name()) && filepath.Dir(path) == filepath.Clean(root)) {
				return fs.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() || !slices.Contains([]string{".go", ".mod", ".md", ".py", ".txtar"}, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		changed := change(text, filepath.Base(path), from, to, imports)
		if bytes.Equal(text, changed) {
			return nil
		}
		n++
		return os.WriteFile(path, changed, 0o644)
	})
	return n, err
}

// topDirectories returns the directories of a module that have packages below them.
func topDirectories(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var tops []string
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || e.Name() == "bin" || e.Name() == "build" {
			continue
		}
		found := false
		err := filepath.WalkDir(filepath.Join(root, e.Name()), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") {
				found = true
				return fs.SkipAll
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if found {
			tops = append(tops, e.Name())
		}
	}
	return tops, nil
}

// importsOf matches import paths of a module, at the end of the first group: not in the middle of a longer path.
func importsOf(module string, tops []string) *regexp.Regexp {
	for i, top := range tops {
		tops[i] = regexp.QuoteMeta(top)
	}
	return regexp.MustCompile(`(^|[^\w./~$}-])` + regexp.QuoteMeta(module) + "(/(?:" + strings.Join(tops, "|") + ")(?:[/\"`]|\\s|$))")
}

// change returns the text of a file with the new name.
func change(text []byte, name, from, to string, imports *regexp.Regexp) []byte {
	begin := "module |replace |require "
	switch filepath.Ext(name) {
	case ".mod":
		begin += `|\t`
	case ".md":
		text = imports.ReplaceAll(text, []byte("${1}"+to+"${2}"))
	default:
		return imports.ReplaceAll(text, []byte("${1}"+to+"${2}"))
	}
	lines := regexp.MustCompile(`(?m)^(` + begin + `)` + regexp.QuoteMeta(from) + `(/| v| =>|$)`)
	return lines.ReplaceAll(text, []byte("${1}"+to+"${2}"))
}
