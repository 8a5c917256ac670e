//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestCompletionKeys presses the tab key in the shells that are installed.
func TestCompletionKeys(t *testing.T) {
	binary, err := e2etest.Binary()
	must.Do(t, err)
	for _, tt := range []struct {
		shell string
		args  []string
		setup string // before the first prompt that counts
	}{
		{"bash", []string{"--norc", "--noprofile", "-i"}, "source ./_gorun"},
		{"zsh", []string{"-f", "-i"}, "autoload -Uz compinit && compinit -D -u && source ./_gorun"},
		{"fish", []string{"--no-config", "-i"}, "source ./_gorun"},
	} {
		t.Run(tt.shell, func(t *testing.T) {
			program, err := exec.LookPath(tt.shell)
			if err != nil {
				t.Skipf("install %s", tt.shell)
			}
			dir := t.TempDir()
			for name, text := range map[string]string{"_gorun": shells[tt.shell], "hosts.of.mine": "node1\nother2\n", "train.program": ""} {
				must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
			}
			must.Do(t, os.Symlink(binary, filepath.Join(dir, "gorun")))
			term := e2etest.NewTerminal(t)
			cmd := exec.Command(program, tt.args...)
			cmd.Dir = dir
			cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "TERM=xterm", "PS1=$ ", "LANG=C.UTF-8"}
			term.Run(cmd)
			must.Do(t, cmd.Start())
			defer cmd.Wait()
			defer cmd.Process.Kill()
			term.Types(tt.setup + "; echo set'' up\r")
			term.Await("set up")
			// Each line is completed, and echo prints the word that was completed.
			for _, line := range []struct{ typed, want string }{
				{"gorun --rank-w\t", "--rank-wrapper"},
				{"gorun -ppn 2 -hostfile hosts.o\t", "hosts.of.mine"},
				{"gorun -np 2 -ring-order mea\t", "measured"},
				{"gorun bench allr\t", "allreduce"},
				{"gorun -np 2 train.p\t", "train.program"},
				{"horovodrun --cycle-time\t", "--cycle-time-ms"},
			} {
				// The cursor goes home, the command becomes an argument of echo.
				term.Types(line.typed + "\x01echo said: \r")
				term.Await(`[\r\n]said: (gorun|horovodrun) [^\r]*` + line.want)
			}
		})
	}
}

// TestChoices: a flag's description has each word that completion offers for its value.
func TestChoices(t *testing.T) {
	for name, words := range choices {
		f, ok := findFlag(slices.Concat(new(jobFlags).table(), new(benchFlags).table()), name).(cli.DocGenerationFlag)
		if !ok {
			t.Errorf("there is no flag --%s", name)
			continue
		}
		for _, word := range words {
			if !strings.Contains(f.GetUsage(), word) {
				t.Errorf("--%s: %q is not among what it takes: %s", name, word, f.GetUsage())
			}
		}
	}
}
