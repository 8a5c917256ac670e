// Command licenses collects the licences of the modules that go into the binaries:
//
//	licenses [-check] [-dir DIRECTORY] FILE [PACKAGE…]
//
// It asks the go command which modules the packages link on any of the platforms that a release is made for: gorun and
// gorund, or others of the module in DIRECTORY. It reads each module's licence and notices from the module cache, and
// writes them to FILE: a table of modules with the SPDX names of their licences and where their source is, then the
// texts. With -check it only reports whether FILE is what it would write.
package main

//go:generate go run . -dir ../../.. ../../../cmd/gorun/THIRD_PARTY_LICENSES
//go:generate go run . -dir ../../kubernetes ../../kubernetes/THIRD_PARTY_LICENSES ./gorun-kubernetes

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// platforms, packages and tags are those of a release.
var (
	platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}
	packages  = []string{"gorun/cmd/gorun", "gorun/cmd/gorund"}
)

// tags are the Makefile's, without gorund: it adds no module, but needs a built file. gorund-rdma has one more.
const (
	tags     = "urfave_cli_no_docs,nethttpomithttp2"
	moreTags = ",rdma"
)

func main() {
	check := flag.Bool("check", false, "only report whether the file is up to date")
	dir := flag.String("dir", ".", "`DIRECTORY` of the packages")
	flag.Parse()
	if flag.NArg() < 1 {
		fmt.Fprintln(os.Stderr, "usage: licenses [-check] [-dir DIRECTORY] FILE [PACKAGE…]")
		os.Exit(2)
	}
	if flag.NArg() > 1 {
		packages = flag.Args()[1:]
	}
	if err := run(*check, *dir, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "licenses: error:", err)
		os.Exit(1)
	}
}

func run(check bool, dir, file string) error {
	modules, err := linked(dir)
	if err != nil {
		return err
	}
	text, err := report(modules)
	if err != nil {
		return err
	}
	if !check {
		return os.WriteFile(file, text, 0o644)
	}
	was, err := os.ReadFile(file)
	if err == nil && !bytes.Equal(was, text) {
		err = fmt.Errorf("%s is not what the linked modules need: go generate ./contrib/tools/licenses", file)
	}
	return err
}

// module is one that is linked, or the standard library.
type module struct {
	name, version string
	source        string // where its source is
	root          string
	dirs          map[string]bool // of linked packages
}

// linked returns the modules that the packages in a directory link on any platform, by name.
func linked(dir string) ([]module, error) {
	byName := map[string]*module{}
	for _, platform := range platforms {
		system, arch, _ := strings.Cut(platform, "/")
		list := exec.Command("go", append([]string{"list", "-deps", "-f", listed, "-tags", tags + moreTags}, packages...)...)
		list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
		list.Dir, list.Stderr = dir, os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("list packages for %s: %w", platform, err)
		}
		collect(byName, string(out))
	}
	std, err := standardLibrary()
	if err != nil {
		return nil, err
	}
	all := []module{std}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, *byName[name])
	}
	return all, nil
}

// listed is what go list prints of a package of another module.
const listed = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"

// collect adds the modules of the packages that go list printed.
func collect(byName map[string]*module, packages string) {
	for line := range strings.SplitSeq(strings.TrimSpace(packages), "\n") {
		f := strings.Split(line, "\t")
		m := byName[f[0]]
		if m == nil {
			m = &module{name: f[0], version: f[1], root: f[2], dirs: map[string]bool{},
				source: "https://proxy.golang.org/" + escape(f[0]) + "/@v/" + escape(f[1]) + ".zip"}
			byName[m.name] = m
		}
		m.dirs[f[3]] = true
	}
}

// escape writes upper-case letters as the module proxy does.
func escape(s string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(s, func(c string) string { return "!" + strings.ToLower(c) })
}

// standardLibrary returns the Go distribution. It is no module, but its licence asks for the same. It has no version
// here, so that the text does not depend on the Go that builds it.
func standardLibrary() (module, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	root := strings.TrimSpace(string(out))
	return module{name: "The Go standard library and runtime", source: "https://go.dev/dl", root: root, dirs: map[string]bool{root: true}}, err
}

var noticeFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|authors)([.-].*)?$`)

// notices returns the texts that have to accompany a module, by path in it: in its root, and in the directories of
// linked packages and above them, because copied code brings its own.
func (m module) notices() (map[string]string, error) {
	found := map[string]string{}
	for dir := range m.dirs {
		for ; len(dir) >= len(m.root); dir = filepath.Dir(dir) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if !e.Type().IsRegular() || !noticeFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
					continue
				}
				text, err := os.ReadFile(filepath.Join(dir, e.Name()))
				if err != nil {
					return nil, err
				}
				name, _ := filepath.Rel(m.root, filepath.Join(dir, e.Name()))
				found[filepath.ToSlash(name)] = tidy(string(text))
			}
		}
	}
	return found, nil
}

// tidy drops what differs without meaning: ends of lines, blanks before them, blank lines around the text.
func tidy(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\f")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// phrases show which licence a text is, by its SPDX name. All phrases of a licence must occur, in upper or lower case.
var phrases = []struct {
	name string
	all  []string
}{
	{"MPL-2.0", []string{"mozilla public license", "covered software", "version 2.0"}},
	{"Apache-2.0", []string{"apache license version 2.0, january 2004"}},
	{"MIT", []string{"permission is hereby granted, free of charge, to any person obtaining a copy", "the above copyright notice and this permission notice"}},
	{"MIT", []string{"opensource.org/license/mit"}}, // a notice's way to name it
	{"ISC", []string{"distribute this software for any purpose with or without fee is hereby granted"}},
	{"BSD-3-Clause", []string{"redistribution and use in source and binary forms", "neither the name"}},
	{"BSD-2-Clause", []string{"redistribution and use in source and binary forms"}},
}

// identify returns the SPDX names of the licences in a text.
func identify(text string) []string {
	flat := strings.ToLower(strings.Join(strings.Fields(text), " "))
	var names []string
	for _, p := range phrases {
		all := !slices.ContainsFunc(p.all, func(s string) bool { return !strings.Contains(flat, s) })
		if all && (p.name != "BSD-2-Clause" || !slices.Contains(names, "BSD-3-Clause")) {
			names = append(names, p.name)
		}
	}
	return names
}

// report returns the contents of the file.
func report(modules []module) ([]byte, error) {
	var table, texts bytes.Buffer
	users := map[string][]string{} // of each text
	var order []string
	for _, m := range modules {
		notices, err := m.notices()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		var licenses []string
		for _, file := range slices.Sorted(maps.Keys(notices)) {
			text := notices[file]
			licenses = append(licenses, identify(text)...)
			if users[text] == nil {
				order = append(order, text)
			}
			users[text] = append(users[text], strings.TrimSpace(m.name+" "+m.version)+": "+file)
		}
		if len(licenses) == 0 {
			return nil, fmt.Errorf("%s %s has no licence that this program knows: read it, and name it in contrib/tools/licenses", m.name, m.version)
		}
		slices.Sort(licenses)
		fmt.Fprintf(&table, "%s\n  %s\n  %s\n", strings.TrimSpace(m.name+" "+m.version), strings.Join(slices.Compact(licenses), " AND "), m.source)
	}
	if len(order) == 0 {
		return nil, errors.New("no module is linked")
	}
	line := strings.Repeat("=", 80)
	for _, text := range order {
		fmt.Fprintf(&texts, "\n%s\n%s\n%s\n\n%s\n", line, strings.Join(users[text], "\n"), line, text)
	}
	return append([]byte(head), append(append(table.Bytes(), '\n'), texts.Bytes()...)...), nil
}

const head = `gorun contains software of others. Below are its modules, each with its licences (by SPDX name) and where its source is, and
then the texts of these licences and the notices that come with the modules. Nothing in them was changed.

`
