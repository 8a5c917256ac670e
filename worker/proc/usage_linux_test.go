package proc

import (
	"os/exec"
	"testing"
	"time"

	"gorun/contrib/must"
)

func TestUsed(t *testing.T) {
	cmd := exec.Command("sh", "-c", "cat; true")
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	defer cmd.Wait()
	defer in.Close()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		used, err := Used([]int{cmd.Process.Pid, 1 << 30})
		must.Do(t, err)
		u := used[cmd.Process.Pid]
		if u.Processes == 2 && u.RSS > 0 && used[1<<30].Processes == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a shell and its cat use %+v", used)
		}
	}
}

// BenchmarkUsed measures what a daemon reads of eight ranks when somebody watches a job: once a second.
func BenchmarkUsed(b *testing.B) {
	var pids []int
	for range 8 {
		cmd := exec.Command("cat")
		in, err := cmd.StdinPipe()
		must.Do(b, err)
		must.Do(b, cmd.Start())
		defer cmd.Wait()
		defer in.Close()
		pids = append(pids, cmd.Process.Pid)
	}
	for b.Loop() {
		if used, err := Used(pids); err != nil || used[pids[7]].Processes != 1 {
			b.Fatal(used, err)
		}
	}
}
