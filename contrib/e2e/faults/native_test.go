package faults

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestNativeStacks: a user sees the functions of C that ranks of Python hang in, on all hosts, and the ranks go on.
func TestNativeStacks(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	const script = "import time\nbegan = time.time()\nwhile time.time() < began + 60:\n  time.sleep(0.2); print('beat', flush=True)"
	cmd, stdout, _ := c.Command("-np", "2", "-H", "host1,host2", "--grace", "0.2", e2etest.Python, "-c", script)
	must.Do(t, cmd.Start())
	defer func() { c.GorunBeside("stop", "--now"); cmd.Wait() }()
	native := regexp.MustCompile(`(?m)^  \S*nanosleep\S* \(libc.*\)$`)
	said := ""
	for end := time.Now().Add(time.Minute); !native.MatchString(said) || !strings.Contains(said, "_PyEval_Eval"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no stack of C:\n%s", said)
		}
		said = c.GorunBeside("stacks", "--native").Stdout
	}
	before := stdout.Count("beat")
	for end := time.Now().Add(30 * time.Second); stdout.Count("beat") < before+6; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the ranks do not go on")
		}
	}
}
