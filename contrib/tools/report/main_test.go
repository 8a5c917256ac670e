package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const (
		good = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: lost 0.2 s\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"        of 3 s\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    --- PASS: TestA/part (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: needs root\n"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"pass","Package":"p","Elapsed":1.25}
{"Action":"skip","Package":"empty","Elapsed":0}
`
		bad = `{"Action":"output","Package":"p","Test":"TestC","Output":"c_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestC","Elapsed":0.5}
{"Action":"fail","Package":"p","Elapsed":0.5}
`
		crash = `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: oops\n"}
{"Action":"fail","Package":"p","Elapsed":0.5}
`
		race = `{"Action":"output","Package":"p","Test":"TestC","Output":"WARNING: DATA RACE\n"}
` + bad
		broken = `{"ImportPath":"p","Action":"build-output","Output":"x.go:1: syntax error\n"}
{"ImportPath":"p","Action":"build-fail"}
`
	)
	for _, c := range []struct {
		name, in string
		ok       bool
		want     []string
		skips    string
		failed   string
		figures  string
	}{
		{"good", good, true, []string{"ok   p: 1 tests in 1.2s", "skipped p.TestB: b_test.go:7: needs root"}, "p.TestB: b_test.go:7: needs root\n", "", "p.TestA\n    a_test.go:3: lost 0.2 s\n        of 3 s\n"},
		{"bad", bad, false, []string{"FAIL p.TestC (0.5s)\nc_test.go:1: wrong", "failed p.TestC\n0 passed, 2 failed"}, "", "TestC\n", ""},
		{"crash", crash, false, []string{"---- p.TestD did not end\npanic: oops"}, "", "", ""},
		{"race", race, false, []string{"WARNING: DATA RACE", "failed p.TestC"}, "", "", ""},
		{"broken", broken, false, []string{"x.go:1: syntax error"}, "", "", ""},
		{"slow", strings.ReplaceAll(good, `"Elapsed":0.1`, `"Elapsed":61.5`), true, []string{"slow p.TestA: 62s\n1 passed"}, "p.TestB: b_test.go:7: needs root\n", "", "p.TestA\n    a_test.go:3: lost 0.2 s\n        of 3 s\n"},
		{"not json", "go: no such module\n", true, []string{"go: no such module"}, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "skips")
			var out strings.Builder
			ok, err := run(strings.NewReader(c.in), &out, path, path+".figures", path+".failed")
			if err != nil || ok != c.ok {
				t.Errorf("ok %v, %v", ok, err)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in:\n%s", want, out.String())
				}
			}
			if strings.Contains(out.String(), "chatter") || strings.Contains(out.String(), "empty") {
				t.Errorf("too much:\n%s", out.String())
			}
			if failed, _ := os.ReadFile(path + ".failed"); string(failed) != c.failed {
				t.Errorf("failed tests %q, want %q", failed, c.failed)
			}
			if figures, _ := os.ReadFile(path + ".figures"); string(figures) != c.figures {
				t.Errorf("figures %q, want %q", figures, c.figures)
			}
			if skips, _ := os.ReadFile(path); string(skips) != c.skips {
				t.Errorf("skips file holds %q, want %q", skips, c.skips)
			}
		})
	}
}
