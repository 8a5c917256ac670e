package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// TestPlainWords holds every package, and its tests, to the limits.
func TestPlainWords(t *testing.T) {
	dirs, err := packages(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 80 {
		t.Errorf("found %d packages, want at least 80", len(dirs))
	}
	for _, dir := range dirs {
		for _, tests := range []bool{false, true} {
			c, err := read(dir, tests)
			if err != nil {
				t.Error(err)
				continue
			}
			for _, l := range c.excess() {
				t.Errorf("%s: %s", dir, l)
			}
		}
	}
}

// TestExcess checks the measure itself on a package written for it.
func TestExcess(t *testing.T) {
	dir := t.TempDir()
	file := "// Package p tells of hosts, as said and told, the ends of which are those\n// of the guardian. None of whom.\npackage p\n"
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := read(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if c.words != 21 {
		t.Errorf("%d words, want 21", c.words)
	}
	for i, want := range []int{1, 1, 1, 3, 0, 0} {
		if got := len(c.phrases[i]); got != want {
			t.Errorf("%q occurs %d times, want %d", phrases[i].name, got, want)
		}
	}
	if got := c.excess(); len(got) != 2 { // one phrase beyond the slack, one old word
		t.Errorf("excess is %q, want two lines", got)
	}
}

// TestGlossary checks that ARCHITECTURE's glossary stays short and defines each word once.
func TestGlossary(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, words, _ := strings.Cut(string(text), "\n## Words\n")
	words, _, _ = strings.Cut(words, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| (\*.+?) \| (.+?) \| (.+?) \|$`).FindAllStringSubmatch(words, -1)
	if len(rows) < 40 || len(rows) > 60 {
		t.Errorf("the glossary has %d entries, want 40 to 60", len(rows))
	}
	seen := map[string]bool{}
	for _, row := range rows {
		for _, word := range regexp.MustCompile(`\*(.+?)\*`).FindAllStringSubmatch(row[1], -1) {
			if seen[word[1]] {
				t.Errorf("the glossary defines %q twice", word[1])
			}
			seen[word[1]] = true
		}
		for _, owner := range regexp.MustCompile("`(.+?)`").FindAllStringSubmatch(row[3], -1) {
			if _, err := os.Stat(filepath.Join(root, owner[1])); err != nil {
				t.Errorf("the glossary names %s as the owner of %s: %v", owner[1], row[1], err)
			}
		}
	}
}

// TestPaths checks that each path that ARCHITECTURE names exists, and that the names behind a Go file, or before it,
// are declared there: "`FILE` (`NAME`, `NAME`)", "(`FILE`, `NAME`)" and "`NAME` in `FILE`".
func TestPaths(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile("`([\\w.*/-]+/[\\w.*/-]*|[\\w-]+\\.(?:go|py|md|c|h))`").FindAllStringSubmatch(string(text), -1)
	if len(paths) < 100 {
		t.Errorf("found %d paths, want at least 100", len(paths))
	}
	for _, path := range paths {
		if found, err := filepath.Glob(filepath.Join(root, path[1])); err != nil || len(found) == 0 {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", path[1])
		}
	}
	const file, names = "`(?P<file>[\\w/]+/[\\w/]+\\.go)`", "(?P<names>(?:`[\\w.]+`(?:,\\s+)?)+)"
	for form, atLeast := range map[string]int{
		file + "\\s+\\(" + names + "\\)":       20,
		"\\(" + file + ",\\s+" + names + "\\)": 10,
		names + "\\s+in\\s+" + file:            4,
	} {
		match := regexp.MustCompile(form)
		found := match.FindAllStringSubmatch(string(text), -1)
		if len(found) < atLeast {
			t.Errorf("found %d places of the form %s, want at least %d", len(found), form, atLeast)
		}
		for _, place := range found {
			path := place[match.SubexpIndex("file")]
			declared := declarations(t, filepath.Join(root, path))
			for _, name := range regexp.MustCompile("`(.+?)`").FindAllStringSubmatch(place[match.SubexpIndex("names")], -1) {
				if !declared[name[1]] {
					t.Errorf("ARCHITECTURE.md names %s in %s, which does not declare it", name[1], path)
				}
			}
		}
	}
}

// TestPathsInDocs checks that each path of the tree that README, the changelog or a page of the docs names exists.
func TestPathsInDocs(t *testing.T) {
	var docs []string
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, found...)
	}
	if len(docs) < 70 {
		t.Fatalf("found %d pages", len(docs))
	}
	path := regexp.MustCompile("[`(]((?:cmd|collective|contrib|docs|launcher|rendezvous|topology|worker)/[\\w./-]+)[`)]")
	for _, doc := range append(docs, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, named := range path.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, named[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", filepath.Base(doc), named[1])
			}
		}
	}
}

// declarations returns the types and functions of a Go file, its methods as Type.Method, and its constants and
// variables.
func declarations(t *testing.T, path string) map[string]bool {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				if id, ok := of.(*ast.Ident); ok {
					name = id.Name + "." + name
				}
			}
			declared[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						declared[name.Name] = true
					}
				case *ast.TypeSpec:
					declared[spec.Name.Name] = true
				}
			}
		}
	}
	return declared
}
