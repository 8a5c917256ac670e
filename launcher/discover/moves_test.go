package discover

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gorun/launcher/hosts"
)

func TestMoves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []Move
	var notes []string
	Moves{Command: `echo "host1 starts vMotion to  esx-07"; echo "host2 flies"; echo "host2 leaves  esx-07"; echo; printf 'host1 en'; printf 'ds\n'; exec sleep 100`}.Watch(ctx,
		func(m Move) {
			if got = append(got, m); len(got) == 3 {
				cancel()
			}
		}, func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) })
	if want := []Move{{Host: "host1", What: "starts", Text: "vMotion to esx-07"}, {Host: "host2", What: "leaves", Text: "esx-07"}, {Host: "host1", What: "ends"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], `"host2 flies" is not: HOST starts|ends|leaves|returns TEXT`) {
		t.Errorf("notes: %q", notes)
	}
}

// TestParseMove: the end of a move may name where the host is now, and only in front of its text.
func TestParseMove(t *testing.T) {
	at := func(esxi, rack string) map[string]string { return map[string]string{"esxi": esxi, "rack": rack} }
	for line, want := range map[string]Move{
		"vm ends moved from esx-03":                                   {Host: "vm", Text: "moved from esx-03"},
		`vm ends esxi=esx-07 rack="row 2" by=vCenter moved from  a=b`: {Host: "vm", Text: "moved from a=b", Labels: at("esx-07", "row 2"), By: "vCenter"},
		`vm  ends  rack="a \"b\""  esxi=e`:                            {Host: "vm", Labels: at("e", `a "b"`)},
		"vm ends moved, esxi=esx-07":                                  {Host: "vm", Text: "moved, esxi=esx-07"},
		"vm ends room=1":                                              {Host: "vm", Text: "room=1"},
		"vm starts esxi=esx-07":                                       {Host: "vm", What: "starts", Text: "esxi=esx-07"},
	} {
		want.What = cmp.Or(want.What, "ends")
		if got, err := parseMove(line); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, should be %+v", line, got, err, want)
		}
	}
	for line, want := range map[string]string{
		"vm ends esxi= moved":                      "esxi is not a name of 1 to 253 characters",
		`vm ends rack="\n" x`:                      "rack is not a name of 1 to 253 characters",
		"vm ends zone=" + strings.Repeat("z", 254): "zone is not a name of 1 to 253 characters",
	} {
		if got, err := parseMove(line); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %+v, %v, should be %s", line, got, err, want)
		}
	}
}

func TestMovesRunsAgain(t *testing.T) {
	for end, want := range map[string]string{"exit 3": "exit status 3: no vCenter; it runs again in 1s", "exit 0": "announcements of moves: it ended: no vCenter; it runs again in 1s"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		runs := 0
		var notes []string
		Moves{Command: `echo "h ends"; echo "no vCenter" >&2; ` + end}.Watch(ctx, func(Move) {
			if runs++; runs == 2 {
				cancel()
			}
		}, func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) })
		if runs != 2 || len(notes) != 1 || !strings.Contains(notes[0], want) {
			t.Errorf("%s: %d runs, notes %q", end, runs, notes)
		}
	}
}

func FuzzMoves(f *testing.F) {
	f.Add("host1 starts x")
	f.Fuzz(func(t *testing.T, line string) {
		if m, err := parseMove(line); err == nil && m.Host == "" {
			t.Fatalf("no host in %q", line)
		}
	})
}

// FuzzHosts: what a script writes is hosts with slots, or an error.
func FuzzHosts(f *testing.F) {
	f.Add("host1:2\nhost2 slots=3 # comment\n\nuser@[fe80::1]:4", 0)
	f.Add("#!/bin/sh\necho a", 2)
	f.Add("a-worker-0.a.default.svc\n", 1)
	f.Fuzz(func(t *testing.T, text string, slots int) {
		list, err := parse(text, max(0, min(slots, hosts.MaxSlots)))
		for _, h := range list {
			if err != nil || h.Name == "" || h.Slots < 1 || h.Slots > hosts.MaxSlots {
				t.Fatalf("%+v, %v", h, err)
			}
		}
	})
}
