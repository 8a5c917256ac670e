// Package house holds the pages of the project to the tree that they describe.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"gorun/contrib/must"
)

const root = "../../.."

// TestPaths checks that each path that ARCHITECTURE names exists, and that the names behind a Go file, or before it,
// are declared there: "`FILE` (`NAME`, `NAME`)", "(`FILE`, `NAME`)" and "`NAME` in `FILE`".
func TestPaths(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	must.Do(t, err)
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
		must.Do(t, err)
		docs = append(docs, found...)
	}
	if len(docs) < 70 {
		t.Fatalf("found %d pages", len(docs))
	}
	path := regexp.MustCompile("[`(]((?:cmd|collective|contrib|docs|launcher|rendezvous|topology|worker)/[\\w./-]+)[`)]")
	for _, doc := range append(docs, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")) {
		text, err := os.ReadFile(doc)
		must.Do(t, err)
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
	must.Do(t, err)
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
