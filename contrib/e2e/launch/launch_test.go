package launch

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestInterrupt is Ctrl-C, and kill: ranks elsewhere hear which of them it is.
func TestInterrupt(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	tells := `trap "echo interrupted; exit 3" INT; trap "echo terminated; exit 3" TERM; echo busy; while :; do sleep 0.05; done`
	for name, tc := range map[string]struct {
		program []string
		sig     syscall.Signal
		says    string
	}{
		"Python":            {[]string{e2etest.Python, "-c", e2etest.Busy}, syscall.SIGINT, "busy"},
		"handlers, by kill": {[]string{"sh", "-c", tells}, syscall.SIGTERM, "terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, stdout, stderr := c.Begin(2, "busy", append([]string{"-np", "2", "-H", "host1,host2"}, tc.program...)...)
			must.Do(t, cmd.Process.Signal(tc.sig))
			cmd.Wait()
			c.ExpectNothingLeft(time.Second)
			if code := cmd.ProcessState.ExitCode(); code != 128+int(tc.sig) {
				t.Errorf("exit code %d, want %d\n%s", code, 128+int(tc.sig), stderr)
			}
			if stdout.Count(tc.says) != 2 {
				t.Errorf("want %q of both ranks:\n%s", tc.says, stdout)
			}
		})
	}
}

// TestMistakes: what goes wrong on hosts is one line that names the host and the step, one line
// with what to do, and docs/reference/exit-status.md has the exit code.
func TestMistakes(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	// host3 no longer takes the launcher's key.
	c.Shell(c.Host(3), "echo > /root/.ssh/authorized_keys")
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		stderr []string
	}{
		{"unknown host", []string{"-H", "host1,nowhere", "true"}, 255,
			[]string{`(?m)^gorun: error: nowhere: resolve: `, `(?m)^gorun: hint: `}},
		{"refused key", []string{"-H", "host1,host3", "true"}, 255,
			[]string{`(?m)^gorun: error: host3: authenticate: root@host3: no key was accepted`, `(?m)^gorun: hint: .*ssh-copy-id`}},
		{"two hosts, two reasons", []string{"-H", "host1,host3,nowhere", "true"}, 255,
			[]string{`(?m)^gorun: error: 2 of 3 hosts failed`, `(?m)^    host3 +authenticate +`, `(?m)^    nowhere +resolve +`}},
		{"no program", []string{"-H", "host1,host2", "no-such-python", "x.py"}, 127,
			[]string{`(?m)^gorun: error: rank [01] on host[12] could not start: .*no-such-python`, `(?m)^gorun: hint: install the program on host[12]`}},
		{"no script", []string{"-H", "host1,host2", e2etest.Python, "missing.py"}, 2,
			[]string{`(?m)^gorun: error: rank [01] on host[12] exited with status 2`, `(?m)^gorun: hint: put the script on host[12] at the same path`}},
		{"no directory", []string{"-H", "host1,host2", "--wdir", "/no/such/dir", "true"}, 1,
			[]string{`(?m)^gorun: error: rank [01] on host[12] could not start: .*/no/such/dir`, `(?m)^gorun: hint: make it on host[12]`}},
		{"refused port", []string{"-H", "host1", "-p", "2", "true"}, 255,
			[]string{`(?m)^gorun: error: host1: connect: .*refused`, `(?m)^gorun: hint: .*-p sets the port`}},
	} {
		r := c.Gorun(tc.args...)
		if r.Code != tc.code {
			t.Errorf("%s: exit code %d, want %d", tc.name, r.Code, tc.code)
		}
		for _, want := range tc.stderr {
			if !regexp.MustCompile(want).MatchString(r.Stderr) {
				t.Errorf("%s: no match for %s in\n%s", tc.name, want, r.Stderr)
			}
		}
	}
}

// TestUploadOnce: the binary travels to a host the first time only, and secrets never show in argv.
func TestUploadOnce(t *testing.T) {
	c := e2etest.NewCluster(t, 1)
	count := func() string {
		out, err := c.Host(1).Exec(t.Context(), "sh", "-c", "stat -c '%i %Y' /root/.cache/gorun/*/gorun; ls /root/.cache/gorun | wc -l")
		must.Do(t, err)
		return out
	}
	c.Gorun("-H", "host1", "true").Good(t)
	first := count()
	c.Gorun("-H", "host1", "true").Good(t)
	if second := count(); second != first {
		t.Errorf("cache was\n%sand is\n%s", first, second)
	}
	r := c.Gorun("-H", "host1", "sh", "-c", "cat /proc/*/cmdline | tr '\\0' ' '")
	if r.Code != 0 || strings.Contains(r.Stdout, "HOROVOD_RANK=") {
		t.Errorf("exit code %d, command lines: %s", r.Code, r.Stdout)
	}
}
