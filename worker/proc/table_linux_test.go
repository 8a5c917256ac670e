package proc

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A child counts until it has been waited for, and an orphan from the moment in which its parent was.
func TestChildless(t *testing.T) {
	if err := adoptOrphans(); err != nil {
		t.Fatal(err)
	}
	if !childless() {
		t.Fatal("there are children before one was started")
	}
	cmd := exec.Command("/bin/sh", "-c", "sleep 600 <&- >&- 2>&- & echo $!")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if childless() {
		t.Error("a child that was not waited for is missed")
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if childless() {
		t.Error("an orphan is missed")
	}
	unix.Kill(orphan, unix.SIGKILL)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if pid, _ := unix.Wait4(orphan, nil, unix.WNOHANG, nil); pid == orphan {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the orphan cannot be waited for")
		}
	}
	if !childless() {
		t.Error("there are children after all were waited for")
	}
}
