package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestAudit: a resident daemon logs who asked it for what, for its user alone, and serves metrics of itself and of the
// detached jobs whose launchers it runs.
func TestAudit(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	must.Do(t, s.Daemons[1].Process.Signal(syscall.SIGTERM))
	s.Daemons[1].Wait()
	s.Flags = []string{"--metrics", ":9401"}
	s.Start(1)
	s.Await("cluster", func() bool { return strings.Count(s.Ps(), "0 of 2") == 2 })

	on := func(program string, args ...string) string {
		t.Helper()
		out, err := s.Host(2).Exec(t.Context(), program, args...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	const log = "/root/.cache/gorun/state/gorun/audit/host2-7575.log"
	type entry struct {
		What, Result, From, Job, Detail, Why, Key string
		Claims                                    struct{ User, Program string }
	}
	logged := func() (all []entry) {
		t.Helper()
		for line := range strings.Lines(on("cat", log)) {
			var e entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			all = append(all, e)
		}
		return all
	}
	metrics := func() string {
		return on(e2etest.Python, "-c", "import urllib.request as u; print(u.urlopen('http://localhost:9401/metrics').read().decode())")
	}

	detach, stdout, stderr := s.Command(slices.Concat(s.Args, []string{"--detach", "-np", "3", e2etest.Python, "-c", e2etest.Busy})...)
	if err := detach.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	s.Await("metrics of the job", func() bool {
		text := metrics()
		return !slices.ContainsFunc([]string{`gorun_rank_running{host="host2",job="1"`, `gorun_rank_arena_bytes{host="host2",job="1"`,
			`gorun_link_sent_bytes_total{host="host1",job="1",to="host2",transport="tcp"} `,
			`gorun_host_operations_total{host="host1",job="1",kind="allreduce"} `,
			`gorun_host_operation_wait_seconds_total{host="host2",job="1",kind="allreduce"} `,
		}, func(want string) bool { return !strings.Contains(text, want) })
	})
	for _, want := range []string{`gorun_daemon_slots{daemon="host2"} 2`, `gorun_daemon_known_hosts{daemon="host2"} 2`, `gorun_daemon_holds_queue{daemon="host2"} 0`,
		`gorun_daemon_requests_total{daemon="host2",request="detach",result="done"} 1`} {
		if text := metrics(); !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	stop, _, stderr := s.Command(slices.Concat([]string{"stop"}, s.Args)...)
	if err := stop.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	job, _, stderr := s.Command(slices.Concat(s.Args, []string{"-np", "4", "true"})...)
	if err := job.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	s.Shell(s.Launcher(), "umask 077; head -c 32 /dev/urandom | base64 >/root/.ssh/other")
	stranger, _, _ := s.Command("ps", "--cluster", "host2", "--cluster-key-file", "/root/.ssh/other")
	if err := stranger.Run(); err == nil {
		t.Error("another key is accepted")
	}
	launcher := s.Launcher().Address().String() + ":"
	for what, fits := range map[string]func(entry) bool{
		"begin": func(e entry) bool { return strings.HasPrefix(e.Detail, "gorun ") && e.Key == "" },
		"join":  func(e entry) bool { return e.Result == "done" },
		"detach": func(e entry) bool {
			return e.Job == "1" && strings.HasPrefix(e.From, launcher) && strings.Contains(e.Claims.Program, "python") && len(e.Key) == 16
		},
		"start": func(e entry) bool {
			return e.Claims.User == "root" && e.Claims.Program == "true" && len(e.Key) == 16 && strings.HasPrefix(e.From, launcher)
		},
		"signal": func(e entry) bool {
			return e.Job == "1" && strings.HasPrefix(e.Detail, "SIGTERM, claimed by root@") && len(e.Key) == 16
		},
		"job end": func(e entry) bool { return e.Result == "done" },
		"connect": func(e entry) bool { return e.Result == "refused" && e.Key == "" && strings.HasPrefix(e.From, launcher) },
	} {
		s.Await(what, func() bool {
			return slices.ContainsFunc(logged(), func(e entry) bool { return e.What == what && fits(e) })
		})
	}
	if mode := strings.TrimSpace(on("stat", "-c", "%a %U", log)); mode != "600 root" {
		t.Errorf("the log has mode %s", mode)
	}
}
