package dial

import (
	"bufio"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/must"
)

// TestStuckLocal: a launcher does not wait for the daemon of a killed supervisor, which holds their standard output.
func TestStuckLocal(t *testing.T) {
	local := Local{Exe: "/bin/sh", Args: []string{"-c", "sleep 60 & echo $!; wait"}, Patience: 50 * time.Millisecond}
	d, err := local.Dial(t.Context(), "localhost")
	must.Do(t, err)
	out := bufio.NewReader(d.Out)
	line, err := out.ReadString('\n')
	must.Do(t, err)
	daemon, err := strconv.Atoi(strings.TrimSpace(line))
	must.Do(t, err)
	defer syscall.Kill(daemon, syscall.SIGKILL)
	must.Do(t, d.Close())
	begun := time.Now()
	out.ReadString('\n')
	if _, err := d.Wait(); err == nil || time.Since(begun) > 30*time.Second {
		t.Errorf("it ended after %v: %v", time.Since(begun), err)
	}
}
