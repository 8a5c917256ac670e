package wire_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

var messages = []wire.Message{
	&wire.Hello{Proto: wire.Proto, Version: "v1", PID: 7},
	&wire.Job{ID: "j", Secret: []byte("s"), HostID: 1, Name: "a", Slots: 1, Argv: []string{"python3"}, Env: []string{"A=1"}},
	&wire.Ready{Gossip: "10.0.0.1:7", Data: []string{"10.0.0.1:8"}, Port: 9, Host: topology.Host{Name: "a", NICs: []topology.NIC{{Name: "eth0", Node: -1}}}},
	&wire.Roster{Epoch: 1, Size: 2, Ranks: []wire.Rank{{Process: 4, Rank: 3, LocalRank: 1, Env: []string{"RANK=3"}}}, Peers: []wire.Peer{{Name: "a", Ranks: []int{0, 1}}}, MasterAddr: "10.0.0.1", MasterPort: 9},
	&wire.Spares{Epoch: 1, Ranks: []wire.Rank{{Process: 5, Rank: 2, LocalRank: 1, Slot: 1}}},
	&wire.Committed{World: wire.World{Epoch: 1, Order: []int{0, 1}, Why: []string{"x", "y"}}},
	&wire.Started{Process: 1, PID: 2},
	&wire.Output{Process: 1, Stream: wire.Stderr, Data: []byte("oops\n")},
	&wire.Exited{Process: 1, Code: 137, Signal: 9},
	&wire.Failed{Step: "probe", Text: "t", Hint: "h", Code: 255},
	&wire.Log{Text: "hi"},
	&wire.Stdin{Data: []byte("in"), EOF: true},
	&wire.Signal{Number: 10},
	&wire.Stop{Now: true},
	&wire.Done{Links: wire.Links{SentBytes: 1 << 40, ResentBytes: 4096, ResentSegments: 2, Renewed: 8, Damaged: 3}},
	&wire.Taken{},
	&wire.Inspect{},
	&wire.Inspected{Ranks: []wire.RankState{{Process: 1, State: "sleeps"}}},
	&wire.Fence{Number: 2, Pairs: map[string]string{"k": "v"}},
	&wire.Rejoining{Process: 3, Epoch: 1, Why: "w"},
	&wire.StateKept{Epoch: 4},
	&wire.HostsChanged{Epoch: 3, Added: true, Stamp: 5},
	&wire.Alive{},
	&wire.AskFiles{Missing: []int{1}, Python: true},
	&wire.AskPython{Path: "/bin/python3", Platform: wire.Platform{Version: "3.11", Machine: "x86_64", Libc: "2.36"}, Whole: true},
	&wire.Python{Name: "n", Tree: &wire.Tree{Root: "/r", Files: []wire.TreeFile{{Path: "p", Link: "l"}}}},
	&wire.Migrating{Host: 1, State: wire.MoveStarts, Text: "t", Moved: true, Labels: map[string]string{"esxi": "e"}, By: "b"},
	&wire.Edges{Edges: []wire.Edge{{To: 1, RTT: 5e-5, Bandwidth: 1e9}}},
	&wire.Hears{Host: 1, Stamp: 2, Launcher: true},
	&wire.Moved{Host: 1, Stamp: 2, Gossip: "10.0.0.1:1", Data: []string{"10.0.0.1:2"}},
	&wire.Pause{From: 1, Epoch: 2, Verb: wire.PauseGo, Number: 3, Request: 4, Order: []int{1, 0}, Why: []string{"a", "b"}, Text: "t"},
	&wire.Reordered{World: wire.World{Epoch: 2, Order: []int{1, 0}, Why: []string{"a", "b"}}, Former: []int{0, 1}, Text: "t"},
	&wire.Facts{From: 1, Epoch: 2, Host: topology.Host{Name: "b"}},
	&wire.Propose{From: 0, World: wire.World{Epoch: 2}},
	&wire.Prepared{From: 1, Epoch: 2},
	&wire.Commit{From: 0, Epoch: 2},
	&wire.Abort{From: 0, Epoch: 2, Host: 1, Reason: "r"},
	&wire.Stalled{Asked: true, More: 3, Ops: []wire.Waiting{{Kind: "allreduce", Name: "x", Group: 1, AgeMS: 61000, Late: true, Over: true,
		Missing: []wire.Missing{{Host: "b", Ranks: []int{2, 3}}}}}},
	&wire.AskStalled{},
	&wire.GiveUp{Text: "enough"},
	&wire.Evidence{Peer: 2, Epoch: 3, Suspicion: wire.LeaseOver, HungUp: true, UnansweredMS: 5000, AwaitedMS: 4000},
	&wire.Without{Epoch: 3},
	&wire.Name{Rank: 1, Asks: wire.NameLookup, Service: "s", Port: "p", OK: true},
	&wire.Alone{Process: 1, Library: "l", Sure: true},
	&wire.Stuck{Ended: 1, Waiting: []int{0, 2}},
	&wire.Wanted{},
	&wire.Form{Epoch: 1},
	&wire.Peers{Epoch: 1, Peers: []wire.Peer{{Name: "a", Ranks: []int{0, 1}}}},
	&wire.ClusterMember{Port: 7575, Version: "v", Slots: 4, Used: 2, Draining: true},
	&wire.Reserve{Version: "v", Ranks: 8, PerHost: 4, Shares: []wire.Share{{Host: "a", Addr: "10.0.0.1:7575", Slots: 4}}, User: "u", Program: "p"},
	&wire.Queued{Text: "waits"},
	&wire.Granted{Shares: []wire.Share{{Host: "a", Addr: "10.0.0.1:7575", Slots: 4}}},
	&wire.Elsewhere{Addr: "10.0.0.1:7575"},
	&wire.Refused{Text: "no", Hint: "ask"},
	&wire.Serve{Version: "v", Slots: 4},
	&wire.AskJobs{},
	&wire.Keep{Job: "host1/1", Term: 2, Seq: 3, Holder: "host1", Electors: []string{"host1", "host2", "host3"}, LeaseMS: 30000, Value: []byte("v")},
	&wire.Kept{Term: 2, Seq: 3},
	&wire.Adopt{},
	&wire.Account{HasJob: true, Epoch: 4},
	&wire.Vote{Job: "host1/1", Term: 3, Candidate: "host2", Probe: true},
	&wire.Voted{Granted: true, Term: 3, Written: 2, Seq: 3, Electors: []string{"host1", "host2", "host3"}, Value: []byte("v")},
	&wire.AskUsage{},
	&wire.Usage{Ranks: []wire.RankUsage{{Rank: 1, CPUMS: 2, RSS: 3, Processes: 4, State: "runs", Arena: 5}}, Open: 6, Results: 7,
		Each: []wire.LinkUsage{{Peer: 1, Links: wire.Links{SentBytes: 8}, Queued: 9}}, Ops: []wire.OperationUsage{{Kind: "barrier", Ended: 1}}},
	&wire.Jobs{Host: "a", Members: []wire.MemberState{{Host: "a", Addr: "10.0.0.1:7575", Slots: 4, Used: 1, Draining: true, Version: "v"}},
		Jobs: []wire.JobState{{User: "u", Program: "p", Ranks: 2, Shares: []wire.Share{{Host: "a", Slots: 2}}, Seconds: 3}}},
}

func TestRoundTrip(t *testing.T) {
	var buf bytes.Buffer
	w := wire.NewWriter(&buf)
	for _, m := range messages {
		must.Do(t, w.Write(m))
	}
	r := wire.NewReader(iotest.OneByteReader(&buf))
	for _, want := range messages {
		got, err := r.Read()
		if err != nil {
			t.Fatalf("read %T: %v", want, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if _, err := r.Read(); err != io.EOF {
		t.Errorf("after the last message: %v, want io.EOF", err)
	}
}

// TestEncodedOnce: what was encoded before arrives like what is encoded when it is sent, however often.
func TestEncodedOnce(t *testing.T) {
	var buf bytes.Buffer
	w := wire.NewWriter(&buf)
	want := &wire.Log{Text: "hi"}
	e, err := wire.Encode(want)
	must.Do(t, err)
	for range 3 {
		must.Do(t, w.Write(e))
	}
	r := wire.NewReader(&buf)
	for range 3 {
		if got, err := r.Read(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestBadFrames(t *testing.T) {
	big := binary.LittleEndian.AppendUint32(nil, wire.MaxFrame+1)
	for name, tc := range map[string]struct {
		in   []byte
		want string
	}{
		"zero length":    {[]byte{0, 0, 0, 0}, "out of bounds"},
		"too long":       {big, "out of bounds"},
		"unknown type":   {[]byte{1, 0, 0, 0, 255}, "unknown type 255"},
		"truncated head": {[]byte{1, 0}, "unexpected EOF"},
		"truncated body": {[]byte{9, 0, 0, 0, 1}, "unexpected EOF"},
		"not a map":      {[]byte{2, 0, 0, 0, 1, 0xc1}, "decode *wire.Hello"},
		"no such array":  {append([]byte{14, 0, 0, 0, '7', 0x81, 0xa5}, "peers\xdd\xdd\xdd\xdd\xdd\xc0"...), "cut short"},
		"no such map":    {append([]byte{10, 0, 0, 0, '7', 0x81, 0xa5}, "peers\xde\xff\xff"...), "cut short"},
		"no such string": {append([]byte{9, 0, 0, 0, '7', 0x81, 0xa5}, "peers\xd9\x09"...), "cut short"},
		"no length":      {append([]byte{8, 0, 0, 0, '7', 0x81, 0xa5}, "peers\xd9"...), "cut short"},
		"nested":         {append([]byte{100, 0, 0, 0, '7', 0x81, 0xa1, 'x'}, bytes.Repeat([]byte{0x91}, 96)...), "too deep"},
	} {
		_, err := wire.NewReader(bytes.NewReader(tc.in)).Read()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, m := range messages {
		b, err := wire.Marshal(m)
		must.Do(f, err)
		f.Add(b)
	}
	f.Add([]byte("7\x82\xa5peers\xdd\xdd\xdd\xdd\xdd\xdd\xdd")) // an array of four billion
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wire.Unmarshal(b)
		if err != nil {
			return
		}
		if _, err := wire.Marshal(m); err != nil {
			t.Fatalf("decoded message does not encode: %v", err)
		}
	})
}
