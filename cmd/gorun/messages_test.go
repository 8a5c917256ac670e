package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// spoken are the packages whose errors and hints users read.
var spoken = []string{
	"cmd/gorun", "launcher", "launcher/discover", "launcher/elastic",
	"launcher/dial", "launcher/hosts", "launcher/jobs", "launcher/launchers", "launcher/output", "launcher/plan", "launcher/ssh", "launcher/survey",
	"rendezvous/standing", "worker", "worker/member", "worker/moves", "worker/network", "worker/command", "cmd/gorund",
}

// TestMessagesAreHeld: every error that is made from a literal in those packages, and every hint, is expected
// somewhere: by a script, by one of its golden files or by a literal of a test. A message counts as expected where one
// line has what it begins with, up to 40 characters, whatever its verbs stand for; or has words of it, between two
// verbs, that no other has. Not looked for is what only says what was being done when something else failed ("read
// binary: %w"), but for mistakes of users, and what daemons of different versions would say ("unexpected %T").
func TestMessagesAreHeld(t *testing.T) {
	said := map[string]string{} // message: where
	for _, dir := range spoken {
		for name, file := range parsed(t, dir, false) {
			for _, text := range messagesOf(file) {
				said[text] = name
			}
		}
	}
	if len(said) < 300 {
		t.Fatalf("found %d messages only: this test looks for them in the wrong places", len(said))
	}
	excuses := map[string]string{}
	for reason, texts := range unheld {
		for _, text := range texts {
			excuses[text] = reason
		}
	}
	lines := expectations(t)
	distinct := map[string]bool{} // messages that an expectation separates from all others by some of their words
	for _, line := range lines {
		if of := messagesWith(said, line); len(of) == 1 {
			distinct[of[0]] = true
		}
	}
	for _, text := range slices.Sorted(maps.Keys(said)) {
		pattern := patternOf(text)
		if pattern == nil {
			continue
		}
		held := distinct[text] || slices.ContainsFunc(lines, pattern.MatchString) ||
			slices.ContainsFunc(verb.Split(text, -1), func(part string) bool {
				return len(messagesWith(said, part)) == 1 && slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, part) })
			})
		if held == (excuses[text] != "") {
			t.Errorf("%s: %q: expected by a test: %v; excused: %q", said[text], text, held, excuses[text])
		}
	}
	for text := range excuses {
		if said[text] == "" {
			t.Errorf("%q is excused, but nothing says it", text)
		}
	}
}

// messagesWith returns the messages that have some words, ten characters at least and no flag, in them.
func messagesWith(said map[string]string, words string) []string {
	var out []string
	if len(words) >= 10 && !strings.HasPrefix(words, "-") {
		for text := range said {
			if strings.Contains(text, words) {
				out = append(out, text)
			}
		}
	}
	return out
}

// verb is what fmt replaces.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(?:\.[0-9]+)?[a-zA-Z]`)

// patternOf returns what finds a message in a line that expects it; nil if it has fewer than eight characters of its
// own.
func patternOf(text string) *regexp.Regexp {
	var pattern strings.Builder
	own := 0
	for i, part := range verb.Split(text, -1) {
		if i > 0 {
			pattern.WriteString(`.+?`)
		}
		part = strings.ReplaceAll(part, "%%", "%")
		if runes := []rune(part); own+len(runes) > 40 {
			part = string(runes[:40-own])
		}
		own += len([]rune(part))
		pattern.WriteString(regexp.QuoteMeta(part))
		if own >= 40 {
			break
		}
	}
	if own < 8 {
		return nil
	}
	return regexp.MustCompile(pattern.String())
}

// parsed returns the files of a directory of this module, those of its tests or the others, by name.
func parsed(t *testing.T, dir string, tests bool) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	files := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != tests {
			continue
		}
		if files[name], err = parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// messagesOf returns the literals of a file from which errors and hints are made.
func messagesOf(file *ast.File) []string {
	out := hintsIn(file)
	add := func(n ast.Node) { out = append(out, literalsIn(n)...) }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			switch name := calledName(n); {
			case name == "fmt.Errorf", name == "errors.New", name == "hint", strings.HasSuffix(name, ".Errorf"), strings.HasSuffix(name, ".Hintf"):
				if len(n.Args) > 0 {
					out = append(out, slices.DeleteFunc(literalsIn(n.Args[0]), onlyContext)...)
				}
			case strings.HasSuffix(name, ".fail"), strings.HasSuffix(name, ".Fail"), strings.HasSuffix(name, ".refuse"):
				for _, arg := range n.Args {
					add(arg)
				}
			}
		case *ast.CompositeLit:
			if id, ok := n.Type.(*ast.Ident); ok && id.Name == "usageError" {
				add(n)
			}
		case *ast.AssignStmt:
			if to, ok := n.Lhs[0].(*ast.SelectorExpr); ok && to.Sel.Name == "Hint" {
				add(n.Rhs[0])
			}
		case *ast.FuncDecl:
			if name := n.Name.Name; (strings.Contains(strings.ToLower(name), "hint") || name == "NextStep") && n.Body != nil {
				ast.Inspect(n.Body, func(n ast.Node) bool {
					if r, ok := n.(*ast.ReturnStmt); ok {
						add(r)
					}
					return true
				})
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if strings.HasSuffix(name.Name, "Hint") && i < len(n.Values) {
					add(n.Values[i])
				}
			}
		}
		return true
	})
	return out
}

// onlyContext reports whether a format names only what was being done when something else failed, or an answer that
// none expects of its version.
func onlyContext(format string) bool {
	return strings.Contains(format, "%T") || strings.Count(format, ":") == 1 && strings.HasSuffix(format, ": %w")
}

// calledName returns the function of a call, as it is written.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return "." + f.Sel.Name
	}
	return ""
}

// literalsIn returns the strings that are written out in a part of a program.
func literalsIn(n ast.Node) []string {
	var out []string
	ast.Inspect(n, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if text, ok := literal(e); ok {
				out = append(out, text)
				return false
			}
		}
		return true
	})
	return out
}

// literal returns the string that is written out in an expression, whether on one line or, joined by +, on several.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		left, before := literal(e.X)
		right, after := literal(e.Y)
		return left + right, before && after && e.Op == token.ADD
	}
	return "", false
}

// expectations returns the lines that tests compare with: of scripts, what is wanted of stdout and stderr and what
// files hold that are no command lines; of tests in Go, the literals that do not describe a failure.
func expectations(t *testing.T) []string {
	t.Helper()
	var out []string
	unescape := strings.NewReplacer(`\`, "", "''", "'")
	eachScript(t, func(lines []string) {
		golden := false
		for _, line := range lines {
			golden = golden || strings.HasPrefix(line, "-- ")
			if strings.HasPrefix(line, "stderr ") || strings.HasPrefix(line, "stdout ") || golden && !strings.HasPrefix(line, "#") {
				out = append(out, unescape.Replace(line))
			}
		}
	})
	for _, tests := range testsOf(t) {
		for name, file := range tests {
			if filepath.Base(name) == "messages_test.go" {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && failureText(call) {
					return false
				}
				if l, ok := n.(*ast.BasicLit); ok {
					text, _ := literal(l)
					out = append(out, strings.Split(strings.ReplaceAll(text, `\`, ""), "\n")...)
				}
				return true
			})
		}
	}
	return out
}

// testsOf returns the tests of those packages, and the end-to-end tests with what serves them.
func testsOf(t *testing.T) (all []map[string]*ast.File) {
	t.Helper()
	for _, dir := range spoken {
		all = append(all, parsed(t, dir, true))
	}
	families, err := filepath.Glob("../../contrib/e2e/*")
	if err != nil || len(families) < 5 {
		t.Fatalf("%d families of end-to-end tests: %v", len(families), err)
	}
	for _, family := range families {
		name := filepath.Base(family)
		all = append(all, parsed(t, "contrib/e2e/"+name, name != "e2etest"))
	}
	return all
}

// failureText reports whether a call describes how a test has failed.
func failureText(call *ast.CallExpr) bool {
	of, verb, _ := strings.Cut(calledName(call), ".")
	return slices.Contains([]string{"t", "b", "tb"}, of) && slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf", "Log", "Logf", "Skip", "Skipf"}, verb)
}

// unheld are messages that no test expects, by why that is well.
var unheld = map[string][]string{
	"a program of another version, or a broken one, would have to say it": {"end pause %d: %w", "unexpected answer %q"},
	"it takes minutes to come about":                                      {"the measurement takes too long"},
	"only machines that are not Linux say it, and no test runs on them":   {"start worker: hosts must run Linux"},
	"sshd refuses a command only in the moment in which it ends":          {"%s: start command: %w"},
	"nobody sees it: where it goes, it is known by its identity":          {"the jobs are left to the next daemon"},
	"cut from, or put after, what others say":                             {": parse error"},
	"a host that a launcher can reach has a network interface":            {"find address: no network interface is up"},
	"the launcher gives up as well, and mostly sooner": {
		"TCP and UDP",
		"hosts must reach each other directly over %s: check that %s is the right NIC (--network-interfaces), " +
			"firewalls between them, and --ssh-config aliases that hide addresses",
	},
	"two things must meet within a moment": {
		"the job's launcher is gone", "the daemon hung up", "ask %s for jobs: the daemons do not agree on who keeps the queue",
		"add what was measured to the topology file: %w",
		"clean up: exit code %d: %s",
	},
}
