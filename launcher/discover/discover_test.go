package discover_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/contrib/must"
	"gorun/launcher/discover"
	"gorun/launcher/hosts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func script(command string, slots int) discover.Script {
	return discover.Script{Command: command, Slots: slots, Every: time.Millisecond, Limit: 20 * time.Second, Env: os.Environ()}
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		command string
		slots   int
		want    string // "" for an error
	}{
		{"echo host1:2; echo host2:4", 0, "[{host1 2} {host2 4}]"},
		{"printf 'host1\\n\\n  host2:4  \\n# host3:1\\n'", 3, "[{host1 3} {host2 4}]"},
		{"echo host1 slots=2; echo me@host2:1; echo fe80::1:4", 1, "[{host1 2} {me@host2 1} {fe80::1:4 1}]"},
		{"true", 0, "[]"},
		{"echo; echo '# nobody'", 0, "[]"},
		{"echo host1", 0, ""},
		{"echo host1:none", 0, ""},
		{"echo host1:0; echo host2 slots=0", 0, "[]"},
		{"echo host1:0; echo host2:4", 0, "[{host2 4}]"},
		{"echo -oProxyCommand=x:2", 0, ""},
		{"echo host1:2; exit 3", 0, ""},
		{"/no/such/script", 0, ""},
		{"head -c 2000000 /dev/zero | tr '\\0' '\\n'", 0, ""},
	} {
		list, err := script(tt.command, tt.slots).Run(t.Context())
		if got := fmt.Sprint(list); (err == nil) != (tt.want != "") || err == nil && got != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.command, got, err, tt.want)
		}
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	s := script("echo trying >&2; echo 'cloud is not there' >&2; exit 4", 0)
	_, err := s.Run(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 4: cloud is not there") {
		t.Errorf("%v", err)
	}
	s = script("sleep 1000 & sleep 1000", 0) // its children end with it
	s.Limit = 50 * time.Millisecond
	begin := time.Now()
	_, err = s.Run(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "it takes longer than 50ms") {
		t.Errorf("%v", err)
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
	if _, err = script("yes", 0).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "it writes more than ") {
		t.Errorf("a script that never ends its list: %v", err)
	}
}

// TestWatch changes a list while it is watched, breaks the script and mends it.
func TestWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write := func(text string) {
		t.Helper()
		must.Do(t, os.WriteFile(file+".new", []byte(text), 0o600))
		must.Do(t, os.Rename(file+".new", file))
	}
	write("a:1\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var lists []string
	var notes []string
	err := script("cat "+file, 0).Watch(ctx, func(list []hosts.ListedHost) {
		lists = append(lists, fmt.Sprint(list))
		switch len(lists) {
		case 1:
			write("a:1\nb:2\n")
		case 2:
			write("a:\n")
		case 3:
			cancel()
		}
	}, func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf(format, args...))
		if len(notes) == 3 {
			write("")
		}
	})
	must.Do(t, err)
	if got := strings.Join(lists, " "); got != "[{a 1}] [{a 1} {b 2}] []" {
		t.Errorf("lists %s", got)
	}
	// After 1, 2 and 4 failures, and when it is over.
	if len(notes) < 4 || !strings.Contains(notes[2], "(4 in a row)") || !strings.Contains(notes[len(notes)-1], "works again") {
		t.Errorf("notes %q", notes)
	}
}

func TestWatchFailsAtOnce(t *testing.T) {
	err := script("exit 1", 0).Watch(t.Context(), func([]hosts.ListedHost) { t.Error("found hosts") }, t.Logf)
	if err == nil {
		t.Error("the first run failed, and no line reports it")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := script("echo a:1", 0).Watch(ctx, func([]hosts.ListedHost) { t.Error("found hosts") }, t.Logf); err != nil {
		t.Errorf("%v", err)
	}
}
