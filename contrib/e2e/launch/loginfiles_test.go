package launch

import (
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestLoginFiles: what a login file of a host does that keeps gorun from it is named as the cause, soon, and what only takes its time or
// prints something does no harm. So it is in a first start, and in others.
func TestLoginFiles(t *testing.T) {
	t.Parallel()
	const (
		reads  = "reads the standard input that is meant for gorun"
		hides  = "hides what commands write"
		leaves = "or what takes the login shell's place, exits or starts another program"
		hint   = "gorun: hint: let ~/.bashrc, or what the login shell reads in its place, begin with: case $- in *i*) ;; *) return ;; esac\n"
		exits  = "gorun: hint: if that was a login file, let ~/.bashrc, say, begin with: case $- in *i*) ;; *) return ;; esac\n"
	)
	for bashrc, want := range map[string]string{
		"read -r line":            reads,
		"cat >/dev/null":          reads,
		"exit 3":                  "exit code 3 without a word: a login file of the host, such as ~/.bashrc, " + leaves,
		"exec sh":                 leaves,
		"exec >/dev/null 2>&1":    hides,
		"echo Welcome; exit":      "it printed instead of running our command: Welcome",
		"echo noise; read -t 1 x": "",
		"sleep 8":                 "",
		"trap 'sleep 1' EXIT; id": "",
	} {
		for _, cold := range []bool{true, false} {
			name := bashrc
			switch {
			case cold:
				name += ", first start"
			case want != hides && want != reads: // how it ends has nothing to do with the program
				continue
			}
			t.Run(name, func(t *testing.T) {
				c := e2etest.NewSSHCluster(t, 1)
				if !cold {
					c.Gorun("-H", "host1", "true").Good(t)
				}
				c.Shell(c.Host(1), "cat >/root/.bashrc <<'END'\n"+bashrc+"\nEND")
				began := time.Now()
				r := c.Bounded(50*time.Second, "-H", "host1", "echo", "let in")
				said := r.Stderr
				t.Logf("exit code %d after %v: %s", r.Code, time.Since(began).Round(time.Millisecond), said)
				switch {
				case want == "":
					if r.Code != 0 || !strings.Contains(r.Stdout, "let in") {
						t.Errorf("it does not start")
					}
				case r.Code != 255 || !strings.HasPrefix(said, "gorun: error: host1: start: ") || !strings.Contains(said, want):
					t.Errorf("want exit code 255 and %q", want)
				case !strings.Contains(want, "printed") && !strings.HasSuffix(said, hint) && !strings.HasSuffix(said, exits):
					t.Errorf("want the hint %q or %q", hint, exits)
				}
				c.Shell(c.Host(1), "rm /root/.bashrc")
				c.ExpectNothingLeft(10 * time.Second)
			})
		}
	}
}
