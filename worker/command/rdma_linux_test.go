package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gorun/contrib/must"
)

// Another program that is the daemon of this one hands on the file that this one runs, not a newer build of its name.
func TestStartAsNamesTheFile(t *testing.T) {
	const replaced = "REPLACED"
	if os.Getenv(replaced) == "" {
		text, err := os.ReadFile("/proc/self/exe")
		must.Do(t, err)
		program := filepath.Join(t.TempDir(), "gorun")
		must.Do(t, os.WriteFile(program, text, 0o700))
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), replaced+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	running, err := os.Stat("/proc/self/exe")
	must.Do(t, err)
	name := os.Args[0]
	must.Do(t, os.WriteFile(name+".new", []byte("newer"), 0o700))
	must.Do(t, os.Rename(name+".new", name))
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"gorun", "worker", "--daemon"}}
	startAs(cmd, "/proc/1/fd/3")
	_, found := takeRDMA(cmd.Args[1:])
	file, err := os.Stat(found.binary)
	if err != nil || !os.SameFile(file, running) || found.exe != name || cmd.Path != "/proc/1/fd/3" {
		t.Errorf("%s %q would be started, which hands on %v, error %v", cmd.Path, cmd.Args, file, err)
	}
}
