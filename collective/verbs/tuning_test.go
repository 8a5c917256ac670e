package verbs

import (
	"net/netip"
	"testing"
	"time"

	"gorun/contrib/must"
)

func TestParseTuning(t *testing.T) {
	changed := DefaultTuning
	changed.GID, changed.RoCE, changed.MTU, changed.TrafficClass, changed.Rest = 3, 1, 1024, 106, 2*time.Second
	changed.Timeout, changed.Retries, changed.RNR, changed.HopLimit = 20, 0, 6, 1
	for text, want := range map[string]Tuning{
		"": DefaultTuning, ",": DefaultTuning,
		"gid=3, roce=1,mtu=1024,class=106,rest=2s,timeout=20,retries=0,rnr=6,hops=1": changed,
	} {
		if got, err := ParseTuning(text); err != nil || got != want {
			t.Errorf("%q is %+v, error %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"mtu=9000": "mtu=9000: must be 256, 512, 1024, 2048 or 4096", "mtu=1500": "mtu=1500: must be 256, 512, 1024, 2048 or 4096",
		"mtu=": "mtu=: must be 256, 512, 1024, 2048 or 4096", "gid=": "gid=: must be 0 to 255", "roce=v2": "roce=v2: must be 1 to 2",
		"rest=1": "rest=1: not a duration from 1ms to 1h, such as 1s", "rest=999us": "rest=999us: not a duration from 1ms to 1h, such as 1s",
		"speed=1":         "speed: none of gid, roce, mtu, class, hops, timeout, retries, rnr and rest",
		"unencrypted=yes": "unencrypted: there is no such option any more, --encrypt encrypts what goes over RDMA too",
	} {
		if _, err := ParseTuning(text); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// The port of a queue pair is the one with the connection's address; its GID may be chosen otherwise.
func TestChoose(t *testing.T) {
	here := netip.MustParseAddr("10.0.0.1")
	gids := func(at string) []GID {
		value := netip.MustParseAddr(at).As16()
		return []GID{{Index: 0, Value: [16]byte{0xfe, 0x80}}, {Index: 1, Value: value}, {Index: 2, Value: value, RoCE2: true}}
	}
	port := func(device string, active bool, at string) Port {
		return Port{Device: device, Number: 1, Active: active, Ethernet: true, MTU: 2048, GIDs: gids(at)}
	}
	infiniband := Port{Device: "ib0", Number: 2, Active: true, MTU: 4096, GIDs: []GID{{Index: 0, Value: [16]byte{0xfe, 0x80, 1}}}}
	tuned := func(text string) Tuning {
		tuning, err := ParseTuning(text)
		must.Do(t, err)
		return tuning
	}
	for name, c := range map[string]struct {
		ports  []Port
		names  []string
		tuning string
		device string
		gid    int
		mtu    int
		err    string
	}{
		"by address":    {ports: []Port{port("a", true, "10.0.1.1"), port("b", true, "10.0.0.1")}, device: "b", gid: 2, mtu: 2048},
		"RoCE v1":       {ports: []Port{port("a", true, "10.0.0.1")}, tuning: "roce=1", device: "a", gid: 1, mtu: 2048},
		"index":         {ports: []Port{port("a", true, "10.0.0.1")}, tuning: "gid=0,mtu=1024", device: "a", gid: 0, mtu: 1024},
		"no such index": {ports: []Port{port("a", true, "10.0.0.1")}, tuning: "gid=7", err: "a port 1 has no GID 7"},
		"active first":  {ports: []Port{port("a", false, "10.0.0.1"), port("b", true, "10.0.0.1")}, device: "b", gid: 2, mtu: 2048},
		"down":          {ports: []Port{port("a", false, "10.0.0.1"), port("b", true, "10.0.1.1")}, err: "a port 1 is down; see rdma link and gorun doctor"},
		"InfiniBand":    {ports: []Port{port("a", true, "10.0.1.1"), infiniband}, device: "ib0", gid: 0, mtu: 4096},
		"other device":  {ports: []Port{port("a", true, "10.0.0.1")}, names: []string{"b"}, err: "no RDMA device b; this host has a"},
		"all down":      {ports: []Port{port("a", false, "10.0.1.1"), port("b", false, "10.0.2.1")}, err: "no port of a is active; see gorun doctor"},
		"no RoCE v1": {ports: []Port{{Device: "a", Active: true, Ethernet: true, GIDs: gids("10.0.0.1")[2:]}}, tuning: "roce=1",
			err: "no RDMA port has the address of the connection with RoCE v1; leave out roce=1"},
		"RoCE v1 and other networks": {ports: []Port{port("a", true, "10.0.1.1")}, tuning: "roce=1", err: errNoPort.Error()},
		"other networks":             {ports: []Port{port("a", true, "10.0.1.1")}, err: errNoPort.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(c.ports, here, c.names, tuned(c.tuning))
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("%+v, error %v, want %s", got, err, c.err)
				}
			} else if err != nil || got.Device != c.device || got.GID.Index != c.gid || got.MTU != c.mtu {
				t.Errorf("%s, GID %d, MTU %d, error %v", got.Device, got.GID.Index, got.MTU, err)
			}
		})
	}
}
