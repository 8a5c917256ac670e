package facts_test

import (
	"go/ast"
	"go/parser"
	"go/token"
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
	note := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			name, _ := strconv.Unquote(l.Value)
			accepted[name] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		clause, ok := n.(*ast.CaseClause)
		if !ok {
			return true
		}
		for _, e := range clause.List {
			note(e)
			ast.Inspect(e, func(n ast.Node) bool { // key == "node"
				if b, ok := n.(*ast.BinaryExpr); ok && b.Op == token.EQL {
					note(b.Y)
				}
				return true
			})
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
