// Package house holds the pages of the project to the tree that they describe.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"

	"gorun/contrib/must"
)

const root = "../../.."

// TestPaths checks that the names behind a Go file in ARCHITECTURE, or before it, are declared there: "`FILE` (`NAME`, `NAME`)",
// "(`FILE`, `NAME`)" and "`NAME` in `FILE`". That paths exist is what contrib/tools/docs/check.py checks.
func TestPaths(t *testing.T) {
	text := must.Read(t, filepath.Join(root, "ARCHITECTURE.md"))
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
