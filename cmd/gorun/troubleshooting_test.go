//go:build linux

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/discover"
	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/hosts"
	"gorun/launcher/plan"
)

// troubles are ends of jobs: each type of error that knows its exit code, in each of its forms.
var troubles = []error{
	&failure.RankError{Rank: 3, Host: "host2", Code: 1, Tail: []string{"Traceback (most recent call last):", "ValueError: bad batch"}},
	&failure.RankError{Rank: 1, Host: "host2", Code: 1, File: "/usr/bin/python3", Tail: []string{"ModuleNotFoundError: No module named 'torch'"}},
	&failure.RankError{Rank: 3, Host: "host2", Code: 137, Signal: 9},
	&failure.RankError{Rank: 3, Host: "host2", Code: 137, Signal: 9, Memory: true},
	&failure.RankError{Rank: 0, Host: "host1", Code: 127, Reason: "train: not found in PATH (/usr/bin:/bin)"},
	&failure.RankError{Rank: 0, Host: "host1", Code: 126, Reason: "/home/me/train.py: permission denied"},
	&failure.RankError{Rank: 1, Host: "host2", Code: 126, Reason: "/nfs/train: its file system has not answered for 20s"},
	&failure.RankError{Rank: 1, Host: "host2", Code: 127, Reason: "python3: /home/me/venv is active where gorun runs, and not there on this host: /usr/bin/python3 would take its place"},
	&failure.RankError{Rank: 0, Host: "host1", Code: 126, Reason: "/usr/bin/python3: argument list too long"},
	&failure.RankError{Rank: 1, Host: "host1", Code: 1, Alone: "Open MPI"},
	&failure.RankError{Rank: 1, Host: "host1", Code: 1, Alone: "gorun"},
	&failure.RankError{Rank: 1, Host: "host1", Code: 1, Unfinished: true},
	&failure.HostErrors{Hosts: 2, Failed: []*failure.HostError{
		{Host: "host1", Step: "connect", Err: errors.New("connection refused"), Code: failure.ExitTransport, Hint: "is sshd running there, and on port 22?"},
		{Host: "host2", Step: "authenticate", Err: errors.New("no key is accepted")}}},
	&failure.HostError{Host: "host2", Step: "join", Err: errors.New("/usr/bin/python3 has torch 1.13, and on host1 /usr/bin/python3 has 2.4"), Code: failure.ExitUsage,
		Hint: "install the same on all hosts, or name a Python that they all have by its path; --strict=false starts the job anyway"},
	&failure.HostError{Host: "host2", Step: "run", Err: errors.New("silent for 30 s"), Code: failure.ExitTransport},
	failure.Timeout(time.Hour, []string{`rank 3 on host2: has not called allreduce "loss", which others wait for`}),
	failure.Elastic(elastic.TooFew, "too few slots: 4 needed, 2 can be used"),
	failure.Elastic(elastic.TooManyResets, "the reset limit of 3 is reached: rank 1 on host1 exited with status 1"),
	&failure.IsolatedError{Hosts: 4, Since: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), Limit: 35 * time.Second},
	&failure.IsolatedError{Hosts: 4, Stopped: 45 * time.Second, Limit: 35 * time.Second},
	&failure.MinorityError{Of: 3, Left: 1},
	&plan.SlotsError{NP: 8, Slots: 4, Hosts: []hosts.ListedHost{{Name: "host1", Slots: 2}, {Name: "host2", Slots: 2}}},
	&discover.Error{Command: "./hosts.sh", Err: errors.New("exit status 1")},
	signalError{syscall.SIGTERM},
	stillThere("host2", time.Minute, "they leave at their next commit"),
	&usageError{errors.New("--grace -1s: must not be negative"), "gorun help time"},
	cannotListen(7575, syscall.EADDRINUSE)}

// TestTroublesAreExplained: docs/troubleshooting.md shows what each type of error with an exit code prints, each step of
// a host, and each mistake in a command line, with … for what was given; and no mistake that nothing reports.
func TestTroublesAreExplained(t *testing.T) {
	text := must.Read(t, filepath.Join(docs, "troubleshooting.md"))
	page := string(text)
	explained := map[string]bool{}
	for _, err := range troubles {
		typ := reflect.TypeOf(err)
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		explained[typ.PkgPath()+"."+typ.Name()] = true
		var said strings.Builder
		code := explain(&said, err)
		_, after, there := strings.Cut(page, "```text\n"+said.String()+"```\n\n")
		if about, _, _ := strings.Cut(after, "\n\n"); !there || !strings.HasSuffix(about, fmt.Sprintf("Exit status %d.", code)) {
			t.Errorf("docs/troubleshooting.md does not explain this error, with exit status %d:\n%s", code, &said)
		}
	}
	types, steps := 0, 0
	sources(t, func(dir, _ string, file *ast.File) {
		if strings.HasPrefix(dir, "contrib") {
			return
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "ExitCode" {
				types++
				if typ := "gorun/" + dir + "." + receiver(f); !explained[typ] {
					t.Errorf("%s knows its exit code: add it to troubles", typ)
				}
			}
		}
		for _, step := range stepsIn(file) {
			steps++
			if !strings.Contains(page, "\n| `"+strings.TrimSpace(step)+"` | ") {
				t.Errorf("hosts fail at step %q, which docs/troubleshooting.md does not explain", step)
			}
		}
	})
	_, table, _ := strings.Cut(page, "\n## Command lines that are refused\n")
	messages := mistakes(t)
	for _, message := range messages {
		if !strings.Contains(table, "\n| "+escaped(message)+" | ") && !skeleton(escaped(message)).MatchString(table) {
			t.Errorf("docs/troubleshooting.md does not explain %q", message)
		}
	}
	if types < 8 || steps < 12 || len(messages) < 60 {
		t.Errorf("found %d types, %d steps and %d messages only: this test looks in the wrong places", types, steps, len(messages))
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*…?.*) \| `).FindAllStringSubmatch(table, -1) {
		if strings.Contains(row[1], "…") && !slices.ContainsFunc(messages, func(m string) bool { return escaped(m) == row[1] }) {
			t.Errorf("docs/troubleshooting.md explains %q, which nothing reports", row[1])
		}
	}
}

// skeleton matches a row of a table whose message is one that a text with … stands for.
func skeleton(text string) *regexp.Regexp {
	return regexp.MustCompile(`\n\| ` + strings.ReplaceAll(regexp.QuoteMeta(text), "…", "[^|]+") + ` \| `)
}

// mistakes are the messages of usageErrors that are made of literals, with … for what was given.
func mistakes(t *testing.T) (messages []string) {
	t.Helper()
	for _, file := range parsed(t, "cmd/gorun", false) {
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || len(lit.Elts) != 2 {
				return true
			}
			if id, ok := lit.Type.(*ast.Ident); !ok || id.Name != "usageError" {
				return true
			}
			call, ok := lit.Elts[0].(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			if message := strings.Join(literalsIn(call.Args[0]), ""); patternOf(message) != nil { // it has words of its own
				messages = append(messages, strings.ReplaceAll(verb.ReplaceAllString(message, "…"), "%%", "%"))
			}
			return true
		})
	}
	slices.Sort(messages)
	return slices.Compact(messages)
}

func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return typ.(*ast.Ident).Name
}

// stepsIn returns the literals that are a Step, of an error or of a constant, or begin one.
func stepsIn(file *ast.File) (out []string) {
	add := func(e ast.Expr) {
		if b, ok := e.(*ast.BinaryExpr); ok {
			e = b.X
		}
		if text, ok := literal(e); ok {
			out = append(out, text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok && id.Name == "Step" {
				add(n.Value)
			}
		case *ast.AssignStmt:
			if to, ok := n.Lhs[0].(*ast.SelectorExpr); ok && to.Sel.Name == "Step" {
				add(n.Rhs[0])
			}
		case *ast.ValueSpec:
			if id, ok := n.Type.(*ast.Ident); ok && id.Name == "Step" && len(n.Values) == 1 {
				add(n.Values[0])
			}
		}
		return true
	})
	return out
}
