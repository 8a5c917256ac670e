package rankenv_test

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/worker/proc"
	"gorun/worker/rankenv"
)

// TestFinalEnvironment starts a process as a rank is started, with a value of the user's for every variable of the
// table, and checks by the rules what the process finds.
func TestFinalEnvironment(t *testing.T) {
	f := someFacts()
	f.Dir = t.TempDir()
	var users []string
	for _, v := range rankenv.Table() {
		if v.Name != "PMI_FD" && v.Name != "PYTHONPATH" && v.Name != "PATH" { // as in TestRules
			users = append(users, v.Name+"=users")
		}
	}
	g, err := proc.Open(proc.Config{Job: f.Job})
	must.Do(t, err)
	defer g.Close()
	for what, env := range map[string][]string{
		"from the shell":  rankenv.Environment(f, slices.Concat(users, []string{"PATH=/usr/bin:/bin"}), nil),
		"for the program": rankenv.Environment(f, []string{"PATH=/usr/bin:/bin"}, users),
	} {
		var out bytes.Buffer
		g.Start(proc.Spec{Process: f.Process, Argv: []string{"env"}, Env: env, Dir: f.Dir}, &out, io.Discard)
		if e := <-g.Exits(); e.Code != 0 {
			t.Fatalf("env: %+v", e)
		}
		found := strings.Split(out.String(), "\n")
		for _, v := range rankenv.Table() {
			if !slices.Contains(users, v.Name+"=users") {
				continue
			}
			wins := v.Rule == rankenv.Default || v.Rule == rankenv.Place && what == "for the program"
			if value, ok := rankenv.Lookup(found, v.Name); !ok || (value == "users") != wins {
				t.Errorf("%s, %v: with a value %s the process finds %q", v.Name, v.Rule, what, value)
			}
		}
	}
}
