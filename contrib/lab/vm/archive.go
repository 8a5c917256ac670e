//go:build linux

package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// archive is a cpio archive in the format that the kernel unpacks ("newc", Linux's
// Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	bytes.Buffer
	inode int
}

func (a *archive) dir(name string) { a.entry(name, 0o40755, nil) }

func (a *archive) file(name string, mode fs.FileMode, data []byte) {
	a.entry(name, 0o100000|int(mode.Perm()), data)
}

func (a *archive) entry(name string, mode int, data []byte) {
	a.inode++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name + "\x00")
	a.pad()
	a.Write(data)
	a.pad()
}

// pad fills up to a multiple of 4.
func (a *archive) pad() { a.Write(make([]byte, -a.Len()&3)) }

func (a *archive) end() []byte {
	a.entry("TRAILER!!!", 0, nil)
	return a.Bytes()
}

// loadOrder returns the files of modules and of what they need, in an order in which they can be loaded,
// without the ones loaded already.
func loadOrder(dir string, names []string, done map[string]bool) ([]string, error) {
	dep, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("read module dependencies: %w", err)
	}
	needs, byName := map[string][]string{}, map[string]string{}
	for line := range strings.Lines(string(dep)) {
		file, list, _ := strings.Cut(strings.TrimSpace(line), ":")
		needs[file] = strings.Fields(list)
		byName[strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")] = file
	}
	var order []string
	for _, name := range names {
		file, ok := byName[name]
		if !ok {
			continue // built into the kernel
		}
		// A module's dependencies are listed with the first one to load last.
		files := append([]string{file}, needs[file]...)
		slices.Reverse(files)
		for _, f := range files {
			if !done[f] {
				done[f] = true
				order = append(order, f)
			}
		}
	}
	return order, nil
}

// closure returns packages with all their dependencies, as far as installed, and the essential packages, by the names
// that dpkg -L accepts.
func closure(status string, names []string) ([]string, error) {
	type pkg map[string]string
	installed, provided := map[string]pkg{}, map[string]string{}
	todo := slices.Clone(names)
	for _, block := range strings.Split(status, "\n\n") {
		p := pkg{}
		for line := range strings.Lines(block) {
			if key, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
				p[key] = strings.TrimSpace(value)
			}
		}
		if !strings.HasSuffix(p["Status"], " installed") {
			continue
		}
		installed[p["Package"]] = p
		for _, v := range strings.Split(p["Provides"], ",") {
			if f := strings.Fields(v); len(f) > 0 {
				provided[f[0]] = p["Package"]
			}
		}
		if p["Essential"] == "yes" {
			todo = append(todo, p["Package"])
		}
	}
	for _, name := range names {
		if installed[name] == nil {
			return nil, errors.New("make image: apt-get install " + name)
		}
	}
	seen := map[string]bool{}
	var out []string
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		p := installed[name]
		if p == nil {
			name = provided[name]
			p = installed[name]
		}
		if p == nil || seen[name] {
			continue
		}
		seen[name] = true
		if p["Multi-Arch"] == "same" {
			out = append(out, name+":"+p["Architecture"])
		} else {
			out = append(out, name)
		}
		for _, list := range []string{p["Depends"], p["Pre-Depends"]} {
			for _, choice := range strings.Split(list, ",") {
				for _, alternative := range strings.Split(choice, "|") {
					name, _, _ := strings.Cut(strings.TrimSpace(alternative), " ")
					name, _, _ = strings.Cut(name, ":")
					if installed[name] != nil || provided[name] != "" {
						todo = append(todo, name)
						break
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out, nil
}
