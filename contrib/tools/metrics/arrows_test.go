package main

import "testing"

func TestArrows(t *testing.T) {
	for _, c := range []struct {
		name   string
		arrows [][2]string
		want   arrows
	}{
		{"none", nil, arrows{}},
		{"down", [][2]string{{"a", "b"}, {"b", "c"}, {"a", "c"}, {"c", "c"}}, arrows{3, 0, 0}},
		{"whatever the names", [][2]string{{"c", "b"}, {"b", "a"}}, arrows{2, 0, 0}},
		{"circle", [][2]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"a", "d"}}, arrows{4, 3, 1}},
		{"both ways", [][2]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "b"}}, arrows{4, 4, 2}},
		{"twice", [][2]string{{"a", "b"}, {"a", "b"}}, arrows{1, 0, 0}},
	} {
		g := graph{}
		for _, a := range c.arrows {
			g.add(a[0], a[1])
		}
		if got := g.count(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestCodeLines(t *testing.T) {
	text := "package p\n\n// a comment\nvar x = 1 // and another\n\n/* one\n more */\nfunc f() {\n}\n"
	if n := codeLines([]byte(text)); n != 4 {
		t.Errorf("%d lines of code, want 4", n)
	}
}
