//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gorun/contrib/must"

	"github.com/urfave/cli/v2"
)

// helpPages are the pages of help by the names of their golden files.
func helpPages() map[string]func(app *cli.App) []string {
	pages := map[string]func(*cli.App) []string{
		"gorun": func(*cli.App) []string { return []string{"gorun", "--help"} },
		"flags": func(*cli.App) []string { return []string{"gorun", "help", "flags"} },
		"horovodrun": func(app *cli.App) []string {
			app.Name = horovodrun
			return []string{"gorun", "--help"}
		},
	}
	for _, c := range visibleCommands(newApp(nil)) {
		if c.Name == "help" { // it shows the help of gorun itself
			continue
		}
		pages["command-"+c.Name] = func(*cli.App) []string { return []string{"gorun", c.Name, "--help"} }
	}
	for _, name := range topicNames() {
		pages["topic-"+name] = func(*cli.App) []string { return []string{"gorun", "help", name} }
	}
	return pages
}

// TestHelp compares each page of help with a file of testdata/help, which UPDATE_HELP=1 writes. No page has lines that wrap
// on a terminal of 80 columns.
func TestHelp(t *testing.T) {
	seen := map[string]bool{}
	for name, args := range helpPages() {
		var page bytes.Buffer
		app := newApp(nil)
		app.Writer = &page
		if err := app.Run(args(app)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for line := range strings.Lines(page.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
				t.Errorf("%s: a line of %d columns: %s", name, n, line)
			}
		}
		file := filepath.Join("testdata", "help", name+".txt")
		seen[file] = true
		if os.Getenv("UPDATE_HELP") != "" {
			must.Do(t, os.WriteFile(file, page.Bytes(), 0o644))
			continue
		}
		want := must.Read(t, file)
		if page.String() != string(want) {
			t.Errorf("%s differs from %s: UPDATE_HELP=1 go test ./cmd/gorun -run TestHelp writes it anew\n%s", name, file, &page)
		}
	}
	files, _ := filepath.Glob("testdata/help/*")
	for _, file := range files {
		if !seen[file] {
			t.Errorf("%s is the help of nothing", file)
		}
	}
}

// TestMainHelp: gorun --help fits a screen and a half, and each of its flags exists.
func TestMainHelp(t *testing.T) {
	var page bytes.Buffer
	app := newApp(nil)
	mainHelp(&page, app, commands(nil))
	if n := strings.Count(page.String(), "\n"); n > 36 {
		t.Errorf("%d lines", n)
	}
	for _, f := range everyday {
		if findFlag(app.Flags, f.name) == nil {
			t.Errorf("there is no flag %s", f.name)
		}
	}
	if len(everyday) != 10 {
		t.Errorf("%d everyday flags", len(everyday))
	}
}

// TestFlagsHaveHelp: each flag of a launch is on the page of a topic, and each flag that takes a value names it.
func TestFlagsHaveHelp(t *testing.T) {
	app := newApp(nil)
	check := func(where string, flags []cli.Flag) {
		for _, f := range flagInfos(flags) {
			if f.value == "VALUE" {
				t.Errorf("%s: %s takes a value without a word for it", where, f.names[0])
			}
			if f.usage == "" {
				t.Errorf("%s: %s has no meaning", where, f.names[0])
			}
		}
	}
	check("gorun", app.Flags)
	for _, c := range app.Commands {
		check(c.Name, visibleFlags(c))
	}
	for _, f := range app.Flags {
		on := 0
		for _, topic := range topics {
			on += len(topic.flagsOf([]cli.Flag{f}))
		}
		hidden := !f.(cli.VisibleFlag).IsVisible()
		if on != 1 && f != cli.HelpFlag && !(hidden && slices.Contains([]string{"streams", "rdma-library"}, f.Names()[0])) {
			t.Errorf("%v is on %d pages of help", f.Names(), on)
		}
	}
}
