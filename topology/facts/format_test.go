package facts_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"gorun/contrib/must"
	"gorun/topology/facts"
)

// TestKeys: the parser accepts the documented keys and no others.
func TestKeys(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "parse.go", nil, 0)
	must.Do(t, err)
	accepted := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && f.Tag != nil {
			tag, _ := strconv.Unquote(f.Tag.Value)
			accepted[reflect.StructTag(tag).Get("yaml")] = true
		}
		return true
	})
	for name := range accepted {
		if !slices.ContainsFunc(facts.Keys, func(k facts.Key) bool { return k.Name == name }) {
			t.Errorf("key %q is not documented", name)
		}
	}
	for _, k := range facts.Keys {
		if !accepted[k.Name] {
			t.Errorf("key %q is documented, but not accepted", k.Name)
		}
	}
	if _, err := facts.Parse([]byte(facts.Example)); err != nil {
		t.Errorf("the example: %v", err)
	}
}
