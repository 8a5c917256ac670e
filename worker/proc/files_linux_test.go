package proc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"gorun/contrib/must"
	"gorun/worker/proc"
)

// TestFilesBelow: the files of a process are found, and those of what it has started.
func TestFilesBelow(t *testing.T) {
	cmd := exec.Command("sh", "-c", "cat 4</dev/zero; true")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "A=b c"}
	end, err := cmd.StdinPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	defer cmd.Wait()
	defer end.Close()
	cat, err := exec.LookPath("cat")
	must.Do(t, err)
	if cat, err = filepath.EvalSymlinks(cat); err != nil {
		t.Fatal(err)
	}
	interest := func(path string) bool { return path == cat || path == "/dev/zero" }
	var of []proc.Files
	must.Soon(t, "two files", func() bool {
		all, err := proc.FilesBelow([]int{cmd.Process.Pid}, interest)
		of = all[cmd.Process.Pid]
		return err == nil && len(of) == 1 && len(of[0].Paths) == 2
	})
	if !slices.Equal(of[0].Paths, []string{cat, "/dev/zero"}) || of[0].PID == cmd.Process.Pid || !slices.Contains(proc.Environment(of[0].PID), "A=b c") {
		t.Errorf("%+v with %q", of, proc.Environment(of[0].PID))
	}
}
