package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unfuzzed are parsers that no fuzz test reaches, and why that is enough.
var unfuzzed = map[string]string{
	"collective/kernel.ParseCoding":      "one of a few names",
	"collective/schedule.ParseAlgorithm": "one of a few names",
	"launcher/elastic.ParseBlacklist":    "one of a few names",
	"launcher/elastic.ParseOnFailure":    "one of a few names",
	"topology.ParseBy":                   "one of a few names",
}

// TestParsersAreFuzzed: what reads the text of users, programs and hosts is reached by a fuzz test of its package.
func TestParsersAreFuzzed(t *testing.T) {
	name := regexp.MustCompile(`^[Pp]arse[A-Z]?|^(split|next|read)(Words|Host|Marker|Ready|Declare|Variant|Mark|Leave)$`)
	parsers := map[string]bool{}          // dir.name
	calls := map[string]map[string]bool{} // of each function, dir.name: what its body mentions
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "contrib" || d.Name() == "build") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(filepath.Join("..", ".."), filepath.Dir(path))
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			key := dir + "." + f.Name.Name
			test := strings.HasSuffix(path, "_test.go")
			if name.MatchString(f.Name.Name) && !test && f.Recv == nil && takesText(f) {
				parsers[key] = true
			}
			if calls[key] == nil {
				calls[key] = map[string]bool{}
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					calls[key][id.Name] = true
				}
				return true
			})
		}
		return nil
	})
	if err != nil || len(parsers) < 30 {
		t.Fatalf("found %d parsers, error %v", len(parsers), err)
	}
	reached := map[string]bool{}
	var reach func(dir, name string)
	reach = func(dir, name string) {
		key := dir + "." + name
		if reached[key] || calls[key] == nil {
			return
		}
		reached[key] = true
		for callee := range calls[key] {
			reach(dir, callee)
		}
	}
	for key := range calls {
		dir, name, _ := strings.Cut(key, ".")
		if strings.HasPrefix(name, "Fuzz") {
			reach(dir, name)
		}
	}
	for key := range parsers {
		if reached[key] == (unfuzzed[key] != "") {
			t.Errorf("%s: reached by a fuzz test: %v; excused: %q", key, reached[key], unfuzzed[key])
		}
	}
	for key := range unfuzzed {
		if !parsers[key] {
			t.Errorf("%s is excused, but there is no such parser", key)
		}
	}
}

// takesText reports whether a function begins with a text: a string or bytes.
func takesText(f *ast.FuncDecl) bool {
	if len(f.Type.Params.List) == 0 {
		return false
	}
	switch kind := f.Type.Params.List[0].Type.(type) {
	case *ast.Ident:
		return kind.Name == "string"
	case *ast.ArrayType:
		element, ok := kind.Elt.(*ast.Ident)
		return ok && element.Name == "byte"
	case *ast.StarExpr:
		from, ok := kind.X.(*ast.SelectorExpr)
		return ok && from.Sel.Name == "Reader"
	}
	return false
}
