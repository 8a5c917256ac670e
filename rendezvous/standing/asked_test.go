package standing

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gorun/rendezvous/audit"
	"gorun/rendezvous/wire"
)

// aLauncher answers each line with the answer, or hangs up.
type aLauncher struct {
	Launchers
	answer string
}

func (l aLauncher) Open(*wire.Reach) (io.ReadWriteCloser, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, err := bufio.NewReader(theirs).ReadString('\n'); err == nil {
			io.WriteString(theirs, l.answer)
		}
	}()
	return ours, nil
}

func (aLauncher) Asked(line []byte) (what, detail string) {
	what, detail, _ = strings.Cut(strings.TrimSpace(string(line)), " ")
	return what, detail
}

func (aLauncher) Refusal(answer []byte) string {
	return strings.TrimSpace(strings.TrimPrefix(string(answer), "ok"))
}

// TestAsked: a signal is noted with the launcher's answer, who reads the output once, and who has tools stop the ranks.
func TestAsked(t *testing.T) {
	for _, tt := range []struct {
		ask, answer string
		again       time.Duration // 0 for once
		want        map[Request]uint64
	}{
		{"signal TERM", "ok\n", 0, map[Request]uint64{{"signal", audit.Done}: 1}},
		{"signal TERM", "the job ends\n", 0, map[Request]uint64{{"signal", audit.Refused}: 1}},
		{"signal TERM", "", 0, map[Request]uint64{{"signal", audit.Failed}: 1}},
		{"output", "lines\n", time.Second, map[Request]uint64{{"output", audit.Done}: 1}},
		{"output", "lines\n", readInterval, map[Request]uint64{{"output", audit.Done}: 2}},
		{"native", strings.Repeat("stacks", maxAsked), 0, map[Request]uint64{{"native", audit.Done}: 1}},
		{"", "ok\n", 0, nil},
	} {
		t.Run(fmt.Sprint(tt.ask, tt.answer, tt.again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				launcher := aLauncher{answer: tt.answer}
				s := &server{cfg: Config{Launchers: launcher, Log: slog.New(slog.DiscardHandler)}, journal: journal{launchers: launcher}}
				reach := func() {
					ours, theirs := net.Pipe()
					go s.reach(&audited{theirs, s.journal.note, audit.Entry{From: "here"}}, theirs, &wire.Reach{Job: 7})
					in := bufio.NewReader(ours)
					if m, err := wire.NewReader(in).Read(); err != nil {
						t.Fatalf("%v, %v", m, err)
					}
					fmt.Fprintln(ours, tt.ask)
					if got, err := io.ReadAll(in); string(got) != tt.answer || err != nil {
						t.Errorf("the user reads %q, %v", got, err)
					}
					ours.Close()
					synctest.Wait()
				}
				reach()
				if tt.again > 0 {
					time.Sleep(tt.again)
					reach()
				}
				if !maps.Equal(s.journal.requests, tt.want) {
					t.Errorf("noted %v, want %v", s.journal.requests, tt.want)
				}
			})
		})
	}
}
