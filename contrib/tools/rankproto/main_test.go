package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/worker/session/codec"
)

// TestBindings fails if the tables of a binding are not those of the codec.
func TestBindings(t *testing.T) {
	found := map[string]int{}
	for _, root := range []string{"../../python/gorun", "../../c"} {
		err := each(root, func(path string) error {
			old, now, err := read(path)
			if err != nil {
				return err
			}
			if !bytes.Equal(old, now) {
				t.Errorf("%s has stale tables: run go generate ./worker/session/codec", path)
			}
			found[filepath.Ext(path)] += strings.Count(string(old), "begin table: ")
			return nil
		})
		must.Report(t, err)
	}
	if found[".py"] < 6 || found[".h"] < 9 {
		t.Errorf("tables in files by their kind: %v", found)
	}
}

// TestEveryMessage fails if a type of message is in no table.
func TestEveryMessage(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../worker/session/codec/codec.go", nil, 0)
	must.Do(t, err)
	named := map[string]bool{}
	for _, r := range codec.Tables()[0].Rows {
		named[r.Name] = true
	}
	types := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, id := range spec.Names {
			name, ok := strings.CutPrefix(id.Name, "Type")
			if !ok {
				continue
			}
			if types++; !named[strings.ToUpper(name)] {
				t.Errorf("the table of messages has no %s", id.Name)
			}
		}
		return true
	})
	if types != len(named) {
		t.Errorf("%d types of messages, and %d in the table", types, len(named))
	}
}
