package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		if err != nil {
			t.Error(err)
		}
	}
	if found[".py"] < 6 || found[".h"] < 9 {
		t.Errorf("tables in files by their kind: %v", found)
	}
}

// TestEveryMessage fails if a type of message is in no table.
func TestEveryMessage(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../worker/session/codec/codec.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
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

// TestDamagedFiles wants an error for marks that do not fit.
func TestDamagedFiles(t *testing.T) {
	for text, want := range map[string]string{
		"# begin table: kinds\n":                                    "no end",
		"# begin table: kinds\n# begin table: codes\n# end table\n": "out of turn",
		"# end table\n":                             "out of turn",
		"# begin table: wheels\n# end table\n":      "unknown table",
		"# begin table: kinds bytes\n# end table\n": "cannot be written",
	} {
		path := filepath.Join(t.TempDir(), "x.py")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
