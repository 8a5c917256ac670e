package main

import (
	"go/ast"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"

	"github.com/urfave/cli/v2"
)

var (
	// commandLine is a line of a script by which gorun is run, by itself or by a shell; expected is one of what comes of
	// it.
	commandLine = regexp.MustCompile(`(?:^|[\s('"])(?:gorun|horovodrun) (.*)$`)
	expected    = regexp.MustCompile(`^(?:#|(?:! )?stdout |(?:! )?stderr |gorun: )`)
	flagWord    = regexp.MustCompile(`(?:^|[\s'"])--?([A-Za-z][-_A-Za-z0-9]*)`)
)

// scripts returns what the command lines in testdata/script give to gorun, each from the last word gorun on.
func scripts(t *testing.T) []string {
	t.Helper()
	var out []string
	eachScript(t, func(lines []string) {
		for _, line := range lines {
			if m := commandLine.FindStringSubmatch(line); m != nil && !expected.MatchString(line) {
				out = append(out, m[1])
			}
		}
	})
	return out
}

// eachScript visits the lines of each file in testdata/script.
func eachScript(t *testing.T, visit func(lines []string)) {
	t.Helper()
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		text := must.Read(t, file)
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			lines[i] = strings.TrimSpace(line)
		}
		visit(lines)
	}
}

// TestEveryFlagHasAScript: each name of each flag, of a launch and of each command that people run, stands in a command
// line of testdata/script, if only of one that is refused or shows what would be done: so no name is taken that is not
// accepted any more. Whether the script also checks its meaning is up to its author. Flags that a command
// shares with launches may be given to those, and hidden ones of commands, by which gorun speaks to itself, in its own
// code.
func TestEveryFlagHasAScript(t *testing.T) {
	app := newApp(nil)
	given := map[string]map[string]bool{"": {}} // by command, "" for a launch
	for _, c := range visibleCommands(app) {
		given[c.Name] = map[string]bool{}
	}
	for _, line := range scripts(t) {
		command := ""
		if words := strings.Fields(line); len(words) > 0 && given[words[0]] != nil {
			command = words[0]
		}
		for _, m := range flagWord.FindAllStringSubmatch(line, -1) {
			given[command][m[1]] = true
		}
	}
	missing := func(command string, flags []cli.Flag) {
		for _, f := range flags {
			for _, name := range f.Names() {
				if !given[command][name] && !(given[""][name] && command != "") {
					t.Errorf("no script runs gorun %s with flag --%s (of %v)", command, name, f.Names())
				}
			}
		}
	}
	missing("", app.Flags)
	own := map[string]bool{}
	for _, dir := range spoken {
		for _, file := range parsed(t, dir, false) {
			for _, text := range literalsIn(file) {
				own[text] = true
			}
		}
	}
	for _, c := range visibleCommands(app) {
		missing(c.Name, slices.DeleteFunc(slices.Clone(c.Flags), func(f cli.Flag) bool {
			v, ok := f.(cli.VisibleFlag)
			return ok && !v.IsVisible() && own["--"+f.Names()[0]]
		}))
	}
}

// hinted matches what a hint tells people to type: a command of gorun, and flags.
var hinted = regexp.MustCompile(`\bgorun ([a-z]+(?:-[a-z]+)*)|(?:^|[\s(])(--[a-z][-a-z0-9]*)`)

// TestHintsNameWhatExists: the commands and flags in the hints of this package are there.
func TestHintsNameWhatExists(t *testing.T) {
	app := newApp(nil)
	known := map[string]bool{}
	note := func(flags []cli.Flag) {
		for _, f := range flags {
			for _, name := range f.Names() {
				known["--"+name] = true
			}
		}
	}
	note(app.Flags)
	for _, c := range app.Commands {
		known[c.Name] = true
		note(c.Flags)
	}
	hints := 0
	for name, file := range parsed(t, "cmd/gorun", false) {
		for _, hint := range hintsIn(file) {
			hints++
			for _, m := range hinted.FindAllStringSubmatch(hint, -1) {
				if word := m[1] + m[2]; !known[word] {
					t.Errorf("%s: the hint %q names %s, which does not exist", name, hint, word)
				}
			}
		}
	}
	if hints < 50 {
		t.Errorf("found %d hints only: this test looks for them in the wrong places", hints)
	}
}

// hintsIn returns the literals of which the hints in a file are made.
func hintsIn(file *ast.File) (out []string) {
	add := func(n ast.Node) { out = append(out, literalsIn(n)...) }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if id, ok := n.Type.(*ast.Ident); ok && id.Name == "usageError" && len(n.Elts) == 2 {
				add(n.Elts[1])
			}
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(id.Name, "hint") {
				add(n.Value)
			}
		case *ast.AssignStmt:
			if id, ok := n.Lhs[0].(*ast.Ident); ok && id.Name == "hint" {
				add(n.Rhs[0])
			}
		case *ast.FuncDecl:
			if n.Name.Name == "NextStep" {
				ast.Inspect(n.Body, func(n ast.Node) bool {
					if r, ok := n.(*ast.ReturnStmt); ok {
						add(r)
					}
					return true
				})
			}
		}
		return true
	})
	return out
}
