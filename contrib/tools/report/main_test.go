package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/must"
)

func TestReport(t *testing.T) {
	const (
		good = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
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
	}{
		{"good", good, true, []string{"ok   p: 1 tests in 1.2s", "skipped p.TestB: b_test.go:7: needs root"}, "p.TestB: b_test.go:7: needs root\n"},
		{"bad", bad, false, []string{"FAIL p.TestC (0.5s)\nc_test.go:1: wrong", "failed p.TestC\n0 passed, 2 failed"}, ""},
		{"crash", crash, false, []string{"---- p.TestD did not end\npanic: oops"}, ""},
		{"race", race, false, []string{"WARNING: DATA RACE", "failed p.TestC"}, ""},
		{"broken", broken, false, []string{"x.go:1: syntax error"}, ""},
		{"slow", strings.ReplaceAll(good, `"Elapsed":0.1`, `"Elapsed":61.5`), true, []string{"slow p.TestA: 62s\n"}, "p.TestB: b_test.go:7: needs root\n"},
		{"not json", "go: no such module\n", true, []string{"go: no such module"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "skips")
			var out strings.Builder
			o := options{skips: path, command: []string{"printf", "%s", c.in}}
			ok, err := o.run(&out)
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
			if skips, _ := os.ReadFile(path); string(skips) != c.skips {
				t.Errorf("skips file holds %q, want %q", skips, c.skips)
			}
		})
	}
}

// TestAgain has tests fail that run beside others, and looks at which run again.
func TestAgain(t *testing.T) {
	fail := func(pkg, test string) string {
		return `{"Action":"fail","Package":"` + pkg + `","Test":"` + test + `"}` + "\n" + `{"Action":"fail","Package":"` + pkg + `"}` + "\n"
	}
	many := func(n int) (text string) {
		for i := range n {
			text += fail("p", fmt.Sprint("Test", i))
		}
		return text
	}
	defer func(all string) { known = all }(known)
	known = "# which may run again\np.TestB: a cause\np.TestC: a cause\nq.TestA: a cause\n"
	pass := `{"Action":"pass","Package":"p","Test":"TestC"}` + "\n"
	race := `{"Action":"output","Package":"p","Test":"TestC","Output":"WARNING: DATA RACE\n"}` + "\n"
	for _, c := range []struct {
		name, first, second, before string
		ok                          bool
		again                       string
		alone                       []string // what runs again: package and tests
	}{
		{"none", pass, "", "", true, "", nil},
		{"good alone", fail("p", "TestC"), pass, "", true, "p.TestC\n", []string{"^(TestC)$ p"}},
		{"bad alone", fail("p", "TestC"), fail("p", "TestC"), "", false, "p.TestC\n", []string{"^(TestC)$ p"}},
		{"gone", fail("p", "TestC"), "", "", false, "p.TestC\n", []string{"^(TestC)$ p"}},
		{"two packages", fail("q", "TestA") + fail("p", "TestB") + fail("p", "TestC"), pass, "", true, "p.TestB\np.TestC\nq.TestA\n",
			[]string{"^(TestB|TestC)$ p", "^(TestA)$ q"}},
		{"before", fail("p", "TestC"), pass, "p.TestC\n", false, "p.TestC\n", nil},
		{"another before", fail("p", "TestC"), pass, "p.TestB\n", true, "p.TestB\np.TestC\n", []string{"^(TestC)$ p"}},
		{"unknown", many(2), pass, "", true, "p.Test0" + unknown + "\np.Test1" + unknown + "\n", []string{"^(Test0|Test1)$ p"}},
		{"many unknown", many(3), pass, "", false, "", nil},
		{"many unknown before", many(2), pass, "q.TestD" + unknown + "\n", false, "q.TestD" + unknown + "\n", nil},
		{"race", race + fail("p", "TestC"), pass, "", false, "", nil},
		{"broken", `{"Action":"fail","Package":"p"}` + "\n", pass, "", false, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"first": c.first, "second": c.second, "again": c.before} {
				must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			script := `cd "$0"; case "$*" in *-run*) echo "$7 $8" >>alone; cat second;; *) cat first;; esac`
			var out strings.Builder
			o := options{again: filepath.Join(dir, "again"), packages: []string{"p", "q"}, command: []string{"sh", "-c", script, dir, "test", "-json"}}
			ok, err := o.run(&out)
			again, _ := os.ReadFile(o.again)
			alone, _ := os.ReadFile(filepath.Join(dir, "alone"))
			if err != nil || ok != c.ok || string(again) != c.again || strings.TrimSpace(string(alone)) != strings.Join(c.alone, "\n") {
				t.Errorf("ok %v, %v, again %q, alone %q\n%s", ok, err, again, alone, &out)
			}
		})
	}
}

// TestKnown checks that each test that may run again is there, and has a cause.
func TestKnown(t *testing.T) {
	for line := range strings.Lines(known) {
		name, cause, _ := strings.Cut(strings.TrimSpace(line), ": ")
		dir, test, _ := strings.Cut(strings.TrimPrefix(name, "gorun/"), ".")
		if strings.HasPrefix(line, "#") {
			continue
		}
		found := false
		files, _ := filepath.Glob(filepath.Join("../../..", dir, "*_test.go"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			found = found || err == nil && strings.Contains(string(text), "\nfunc "+test+"(t *testing.T)")
		}
		if !found || cause == "" {
			t.Errorf("no test, or no cause: %s", line)
		}
	}
}
