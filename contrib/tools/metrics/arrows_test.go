package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"slices"
	"testing"
)

func TestArrows(t *testing.T) {
	for _, c := range []struct {
		name   string
		arrows [][2]string
		all    int
		circle int
		up     int
	}{
		{"none", nil, 0, 0, 0},
		{"down", [][2]string{{"a", "b"}, {"b", "c"}, {"a", "c"}, {"c", "c"}}, 3, 0, 0},
		{"whatever the names", [][2]string{{"c", "b"}, {"b", "a"}}, 2, 0, 0},
		{"circle", [][2]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"a", "d"}}, 4, 3, 1},
		{"both ways", [][2]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "b"}}, 4, 4, 2},
		{"twice", [][2]string{{"a", "b"}, {"a", "b"}}, 1, 0, 0},
	} {
		g := graph{}
		for _, a := range c.arrows {
			g.add(a[0], a[1], "name")
		}
		if got := g.count(); got.all != c.all || got.circular != c.circle || len(got.up) != c.up {
			t.Errorf("%s: %+v, want %d arrows, %d in circles, %d up", c.name, got, c.all, c.circle, c.up)
		}
	}
}

func TestArrowsUpName(t *testing.T) {
	g := graph{}
	for _, a := range [][3]string{{"a", "b", "f"}, {"a", "c", "f"}, {"b", "a", "h"}, {"b", "a", "g"}, {"b", "a", "g"}} {
		g.add(a[0], a[1], a[2])
	}
	if got, want := g.count().up, []string{"b uses g, h of a"}; !slices.Equal(got, want) {
		t.Errorf("up are %q, want %q", got, want)
	}
}

// TestNoArrowUp holds packages that can be read from the top down to that.
func TestNoArrowUp(t *testing.T) {
	t.Chdir("../../..")
	packages, err := load("./cmd/gorun", "./launcher", "./worker", "./collective")
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 4 {
		t.Fatalf("read %d packages, want 4", len(packages))
	}
	for _, p := range packages {
		if _, err := os.ReadDir(p.dir); err != nil { // so that a new file makes the cached result stale
			t.Error(err)
		}
		for _, up := range fileArrows(p).up {
			t.Errorf("%s: %s, which is above it: move it to a file of its own, or pass it in", p.path, up)
		}
	}
}

func TestCodeLines(t *testing.T) {
	text := "package p\n\n// a comment\nvar x = 1 // and another\n\n/* one\n more */\nfunc f() {\n}\n"
	if n := codeLines([]byte(text)); n != 4 {
		t.Errorf("%d lines of code, want 4", n)
	}
}

func TestInAll(t *testing.T) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", "package p\ntype a struct { x, y int }\nfunc (a) f() {}\n"+
		"type b struct { *a; z int }\nfunc (*b) g() {}\ntype c struct { b; w a }\nfunc (c) h() {}\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(types.Config).Check("m/p", fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if fields, methods := inAll(p.Scope().Lookup("c").Type(), "m"); fields != 4 || methods != 3 {
		t.Errorf("c has %d fields and %d methods in all, want 4 and 3", fields, methods)
	}
}
