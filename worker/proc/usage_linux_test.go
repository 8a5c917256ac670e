package proc

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"gorun/contrib/must"
)

func TestParseUsage(t *testing.T) {
	line := "12 (a) b) S 1 12 12 0 -1 4194560 100 0 0 0 150 50 25 25 20 0 3 0 1000 9999 7 18446744073709551615"
	cpu, rss, ok := parseUsage([]byte(line))
	if want := 7 * int64(os.Getpagesize()); !ok || cpu != 2500*time.Millisecond || rss != want {
		t.Errorf("%v, %d bytes, %v; want 2.5s, %d", cpu, rss, ok, want)
	}
	for _, bad := range []string{"", "12 (a) S 1 2", "12 (a) S 1 12 12 0 -1 4194560 100 0 0 0 x 50 25 25 20 0 3 0 1000 9999 7"} {
		if _, _, ok := parseUsage([]byte(bad)); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

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
