//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gorun/contrib/lab"
)

// commandVariable makes the test binary be the command, which also starts itself.
const commandVariable = "LAB_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestCommand(t *testing.T) {
	if err := lab.Check(); err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("test-%d", os.Getpid())
	command := func(args ...string) (string, int) {
		cmd := exec.Command(os.Args[0], append([]string{"--name", name}, args...)...)
		cmd.Env = append(os.Environ(), commandVariable+"=1")
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	defer command("down")
	for _, step := range []struct {
		args string
		code int
		want string
	}{
		{"run true", 1, "there is no lab called"},
		{"up none", 1, "lab: error: how many hosts?"},
		{"up 2", 0, "host2 10.77.0.2"},
		{"up 2", 1, "is up with 2 hosts"},
		{"run ssh host2 hostname", 0, "host2"},
		{"run pwd", 0, "contrib/lab/cmd/lab"},
		{"exec host1 sh -c exit\t7", 7, ""},
		{"exec 1 sh -c kill\t-9\t$$", 128 + 9, ""},
		{"exec 3 true", 1, "which host? one of 1 to 2"},
		{"link --mbit 100 1", 0, ""},
		{"freeze 1", 0, ""},
		{"thaw 1", 0, ""},
		{"kill 1", 0, ""},
		{"exec 1 true", 1, "host1 is off"},
		{"status", 0, "host1 off"},
		{"down", 0, ""},
		{"down", 1, "there is no lab called"},
	} {
		args := strings.Split(step.args, " ")
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "\t", " ")
		}
		if out, code := command(args...); code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("lab %s: exit status %d, want %d; output %q, want %q in it", step.args, code, step.code, out, step.want)
		}
	}
}
