package main

import (
	"os"
	"path/filepath"
	"testing"

	"gorun/contrib/must"
)

// TestControlGroups: a launcher does not start where a control group, or one above it, leaves it too few threads.
func TestControlGroups(t *testing.T) {
	mount := t.TempDir()
	write := func(dir, most, used string) {
		dir = filepath.Join(mount, dir)
		must.Do(t, os.MkdirAll(dir, 0o755))
		for name, text := range map[string]string{"pids.max": most, "pids.current": used} {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644))
		}
	}
	write("user/small", "12", "5")
	write("user/large", "4096", "5")
	write("user/below/none", "max", "5")
	write("user/below", "100", "95")
	write("pids/old", "12", "5")
	for groups, want := range map[string]string{
		"0::/user/large\n":                      "",
		"0::/user/none\n":                       "",
		"0::/user/small\n":                      "this control group allows 12 processes and threads, and has 5: " + mount + "/user/small",
		"0::/user/below/none\n":                 "this control group allows 100 processes and threads, and has 95: " + mount + "/user/below",
		"9:name=systemd:/\n8:pids:/old\n0::/\n": "this control group allows 12 processes and threads, and has 5: " + mount + "/pids/old",
		"4:memory:/old\n":                       "",
		"nonsense\n":                            "",
	} {
		err := checkGroups(groups, mount)
		if err != nil {
			got := err.Error()
			if got != want {
				t.Errorf("%q: %s", groups, got)
			}
		} else if want != "" {
			t.Errorf("%q: no error", groups)
		}
	}
}
