package top

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// after returns the state of a job so many seconds after its start: ranks wait longer for data, the greater their
// number on the host, and data waits longest at the last host.
func after(seconds, hosts, each int) jobs.State {
	t := int64(seconds) * 1e6
	s := jobs.State{Record: jobs.Record{ID: 7, Program: "python3 train.py --epochs 90", Ranks: hosts * each, Started: begin}}
	for h := range hosts {
		name := fmt.Sprint("host", h+1)
		s.Record.Hosts = append(s.Record.Hosts, name)
		x := jobs.HostStatus{Name: name, Epoch: 1, Links: wire.Links{SentBytes: uint64(t * 12)}}
		if hosts > 1 {
			x.Next = fmt.Sprint("host", (h+1)%hosts+1)
			x.BusyUS = t * int64(h+1) / int64(2*hosts)
			x.BusyBytes = uint64(x.BusyUS) * 25
		}
		s.Hosts = append(s.Hosts, x)
		for i := range each {
			rank := h*each + i
			s.Ranks = append(s.Ranks, jobs.RankStatus{Rank: rank, Host: name, PID: 4000 + rank, State: "computes", CPUMS: 500 + t/1000, At: t, RSS: 3 << 29, Processes: 1 + i,
				Split: &wire.Split{Elapsed: t, Steps: int64(seconds) * 2, Step: 480e3 + int64(rank)*1e3, Data: t * int64(i) / int64(2*each),
					Communication: t / 10, Others: t / 20, Hidden: t / 8, Activity: "computes", For: 2e3}})
		}
	}
	return s
}

// looked is the model of a job that was asked twice.
func looked(hosts, each, width, height int) Model {
	m := New("7").Resize(width, height)
	m = m.Take(after(10, hosts, each), begin.Add(10*time.Second))
	return m.Take(after(12, hosts, each), begin.Add(12*time.Second))
}

// waits has all ranks of the last sample wait.
func waits(m Model, state string) Model {
	now, _ := m.latest()
	for i := range now.state.Ranks {
		now.state.Ranks[i].State = state
	}
	return m
}

// press presses keys one after the other. A key of one letter writes it.
func press(t *testing.T, m Model, keys ...string) Model {
	t.Helper()
	for _, key := range keys {
		text := ""
		if len(key) == 1 {
			text = key
		}
		var leaves bool
		if m, leaves = m.Press(key, text); leaves {
			t.Fatalf("%s leaves", key)
		}
	}
	return m
}

func TestFrames(t *testing.T) {
	for name, m := range map[string]Model{
		"nothing-80x24":   New("7"),
		"job-80x24":       looked(2, 4, 80, 24),
		"job-120x24":      waits(looked(2, 4, 120, 24), "waits for an operation for 1m12s"),
		"job-200x50":      looked(4, 8, 200, 50),
		"one-host-80x24":  looked(1, 4, 80, 24),
		"folded-80x24":    press(t, looked(2, 4, 80, 24), "space"),
		"by-data-80x24":   press(t, looked(2, 4, 80, 24), ">", ">", ">", ">", ">"),
		"filter-80x24":    press(t, looked(2, 4, 80, 24), "/", "2", "-", "5", "enter"),
		"keys-80x24":      press(t, looked(2, 4, 80, 24), "?"),
		"error-80x24":     looked(2, 4, 80, 24).Failed(errors.New("it has not answered\x1b[2J")),
		"thousand-80x24":  looked(125, 8, 80, 24),
		"thousand-200x50": press(t, looked(125, 8, 200, 50), "space", "end"),
	} {
		t.Run(name, func(t *testing.T) {
			frame := m.Frame()
			fits(t, frame, m.width, m.height)
			var plainText strings.Builder
			for line := range strings.Lines(ansi.Strip(frame)) {
				plainText.WriteString(strings.TrimRight(line, " \n") + "\n")
			}
			file := filepath.Join("testdata", name+".txt")
			if *update {
				must.Do(t, os.WriteFile(file, []byte(plainText.String()), 0o644))
			}
			want, err := os.ReadFile(file)
			if err != nil || plainText.String() != string(want) {
				t.Errorf("differs from %s (%v); go test -update writes it:\n%s", file, err, plainText.String())
			}
		})
	}
}

// fits checks that a frame fills the screen and is nowhere larger.
func fits(t *testing.T, frame string, width, height int) {
	t.Helper()
	lines := strings.Split(frame, "\n")
	if len(lines) > max(height, 1) {
		t.Errorf("%d lines on a screen of %d", len(lines), height)
	}
	for _, line := range lines {
		if w := ansi.StringWidth(line); w > max(width, 0) {
			t.Errorf("a line of %d on a screen of %d: %q", w, width, line)
		}
	}
}

// TestSizes: a screen may have any size, and texts from elsewhere any characters.
func TestSizes(t *testing.T) {
	for _, size := range [][2]int{{0, 0}, {1, 1}, {5, 3}, {20, 8}, {79, 24}, {119, 40}, {400, 200}} {
		for _, keys := range [][]string{nil, {"?"}, {"space"}, {"/", "x"}, {"end"}, {"pgdown"}} {
			m := press(t, looked(40, 4, 80, 24), keys...).Resize(size[0], size[1])
			fits(t, m.Frame(), size[0], size[1])
		}
	}
	s := after(10, 2, 2)
	s.Record.Program, s.Hosts[0].Name, s.Ranks[0].Host, s.Ranks[1].State = "训练\x1b[2J\u009b2J", "a\nb", "a\nb", "\x07"
	s.Ranks[1].Split = nil
	m := New("7").Take(s, begin)
	fits(t, m.Frame(), 80, 24)
	if strings.ContainsAny(ansi.Strip(m.Frame()), "\x1b\u009b\x07") {
		t.Errorf("%q", m.Frame())
	}
}

// TestKeys: keys move, sort, filter and fold. What is at the top of a screen with room for one row tells.
func TestKeys(t *testing.T) {
	m := looked(2, 4, 80, 7)
	for keys, want := range map[string]string{
		"":                                  "host1 -1",
		"down":                              "host1 0",
		"down up up":                        "host1 -1",
		"end":                               "host2 7",
		"end home":                          "host1 -1",
		"pgdown pgdown pgup":                "host1 0",
		"space down":                        "host2 -1",
		"space space down":                  "host1 0",
		"> > > > > down":                    "host1 3",
		"> > >":                             "host2 -1",
		"<":                                 "host1 -1",
		"/ h o s t 2 enter":                 "host2 -1",
		"space / 6 enter down":              "host2 6",
		"/ x esc":                           "host1 -1",
		"/ 6 enter esc":                     "host1 -1",
		"/ h o x backspace s t 2 enter end": "host2 7",
		"/ 9 ctrl+u h enter":                "host1 -1",
		"/ 9 9 enter":                       "",
	} {
		got, after := "", press(t, m, strings.Fields(keys)...)
		if rows := after.rows(); len(rows) > 0 {
			got = fmt.Sprint(rows[after.first].host, " ", rows[after.first].rank)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", keys, got, want)
		}
	}
}

// TestScroll: the screen stays among the rows, also when hosts leave.
func TestScroll(t *testing.T) {
	m := press(t, looked(20, 4, 80, 24), "end")
	if shown := ansi.Strip(m.Frame()); !strings.Contains(shown, "    79 ") || strings.Contains(shown, "host1  0-3") {
		t.Errorf("at the end:\n%s", shown)
	}
	m = m.Resize(80, 10).Take(after(14, 2, 2), begin.Add(14*time.Second))
	if shown := ansi.Strip(m.Frame()); !strings.Contains(shown, "host2  2-3") || !strings.Contains(shown, "of 6") {
		t.Errorf("with fewer hosts:\n%s", shown)
	}
}

// TestRestart: of a rank that has started anew, what its earlier process used does not count.
func TestRestart(t *testing.T) {
	s := after(2, 2, 2)
	for i := range s.Ranks {
		s.Ranks[i].PID += 1000
	}
	m := looked(2, 2, 80, 24).Take(s, begin.Add(14*time.Second))
	for _, r := range ranks(m.latest()) {
		if r.cpu >= 0 || r.shares == nil || r.shares[0] > 1 || r.shares[1] < 0 {
			t.Errorf("%+v %+v", r, r.shares)
		}
	}
}

// TestPace: the edge at which data waits longest sets the pace, if it waits there long enough.
func TestPace(t *testing.T) {
	if ring, at := looked(4, 1, 80, 24).ring(); len(ring) != 4 || at != 3 || ring[3].from != "host4" || ring[3].to != "host1" || ring[3].path != 25e6 {
		t.Errorf("%d of %+v", at, ring)
	}
	idle := after(12, 4, 1)
	for i := range idle.Hosts {
		idle.Hosts[i].BusyUS = after(10, 4, 1).Hosts[i].BusyUS
	}
	m := New("7").Take(after(10, 4, 1), begin.Add(10*time.Second)).Take(idle, begin.Add(12*time.Second))
	if _, at := m.ring(); at != -1 {
		t.Errorf("an idle ring waits for edge %d", at)
	}
}

// TestTable: the table has a line for each rank, in the words of the screen.
func TestTable(t *testing.T) {
	lines := strings.Split(Table("7", after(10, 2, 2), after(12, 2, 2)), "\n")
	if len(lines) != 7 || !strings.HasPrefix(lines[0], "job 7, python3 train.py --epochs 90, since ") ||
		lines[1] != "RANK  HOST   PID   CPU   MEMORY    PROCS  STEP    COMP  DATA  COMM  OTHERS  STATE" ||
		lines[5] != "3     host2  4003  100%  1536 MiB  2      483 ms  60%   25%   10%   5%      computes" {
		t.Errorf("%q", lines)
	}
}
