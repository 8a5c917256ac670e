package proc

import (
	"bufio"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/must"

	"golang.org/x/sys/unix"
)

// A child counts until it has been waited for, and an orphan from the moment in which its parent was.
func TestChildless(t *testing.T) {
	must.Do(t, adoptOrphans())
	if !childless() {
		t.Fatal("there are children before one was started")
	}
	cmd := exec.Command("/bin/sh", "-c", "sleep 600 <&- >&- 2>&- & echo $!")
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must.Do(t, err)
	orphan, err := strconv.Atoi(strings.TrimSpace(line))
	must.Do(t, err)
	if childless() {
		t.Error("a child that was not waited for is missed")
	}
	must.Do(t, cmd.Wait())
	if childless() {
		t.Error("an orphan is missed")
	}
	unix.Kill(orphan, unix.SIGKILL)
	must.Soon(t, "the orphan's end", func() bool {
		pid, _ := unix.Wait4(orphan, nil, unix.WNOHANG, nil)
		return pid == orphan
	})
	if !childless() {
		t.Error("there are children after all were waited for")
	}
}

func TestParseMaps(t *testing.T) {
	const text = `55d0c0a00000-55d0c0a02000 r--p 00000000 fd:01 1234                       /usr/bin/cat
55d0c0a02000-55d0c0a06000 r-xp 00002000 fd:01 1234                       /usr/bin/cat
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000001000-7f0000002000 rw-s 00000000 00:01 5                          /dev/shm/a b (deleted)
7f0000002000-7f0000003000 r--p 00000000 fd:01 1235                       /usr/lib/libc.so.6
7f0000003000-7f0000004000 r--p 00003000 fd:01 1234                       /usr/bin/cat
7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                          [stack]
`
	all := func(string) bool { return true }
	if got := parseMaps([]byte(text), all); !slices.Equal(got, []string{"/usr/bin/cat", "/dev/shm/a b (deleted)", "/usr/lib/libc.so.6"}) {
		t.Errorf("%q", got)
	}
	if got := parseMaps([]byte(text), func(path string) bool { return strings.HasSuffix(path, ".6") }); !slices.Equal(got, []string{"/usr/lib/libc.so.6"}) {
		t.Errorf("%q", got)
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte("1-2 r--p 0 0:0 1 /a\n3-4 r--p 0 0:0 1 /a\n/"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, path := range parseMaps(text, func(string) bool { return true }) {
			if !strings.HasPrefix(path, "/") || strings.Contains(path, "\n") {
				t.Errorf("%q", path)
			}
		}
	})
}
