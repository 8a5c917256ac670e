package doctor_test

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/topology"
	"gorun/topology/doctor"
)

// healthy is a host with which nothing is wrong.
func healthy() doctor.Facts {
	return doctor.Facts{
		Host: topology.Host{Name: "a", Hostname: "h", CPUs: 8, NICs: []topology.NIC{{Name: "ens1", Driver: "vmxnet3", MTU: 9000, Queues: 8, Up: true, Addrs: []string{"10.0.0.1/24"}}},
			GPUs: []topology.GPU{{Name: "A40"}}},
		Resolved: []string{"10.0.0.1"}, Kernel: "6.1", Python: "Python 3.11.2", Native: doctor.NativeLoads, Room: []doctor.Room{{Dir: "/tmp", Free: 8 << 30}, {Dir: "/dev/shm", Free: 8 << 30}}, NoFile: 65536, NProc: 65536, MemLock: 1 << 63, Ibverbs: "1.14.44.0",
		Sshd: map[string]string{"maxsessions": "10", "maxstartups": "10:30:100"},
	}
}

func TestJudge(t *testing.T) {
	for _, f := range doctor.Judge(healthy()) {
		if f.Status != doctor.Pass || f.Fix != "" || f.Host != "a" {
			t.Errorf("a healthy host: %+v", f)
		}
	}
	for _, tt := range []struct {
		name   string
		sicken func(*doctor.Facts)
		check  string
		status doctor.Status
		text   string
		fix    string
	}{
		{"few startups", func(f *doctor.Facts) { f.Sshd["maxstartups"] = "2:50:4" }, "sshd", doctor.Warn, "MaxStartups 2:50:4 drops logins when 3 come at once", "MaxStartups 100:30:200"},
		{"sshd", func(f *doctor.Facts) { f.Sshd["maxsessions"] = "0" }, "sshd", doctor.Fail, "MaxSessions 0", "sshd_config"},
		{"python", func(f *doctor.Facts) { f.Python = "" }, "python", doctor.Warn, "no python3", "apt-get install python3"},
		{"old python", func(f *doctor.Facts) { f.Native = "" }, "libgorun", doctor.Warn, "cannot import gorun", "3.9"},
		{"no library", func(f *doctor.Facts) { f.Native = "this package comes without it" }, "libgorun", doctor.Warn, "comes without it", "make zig-ready"},
		{"library", func(f *doctor.Facts) { f.Native = "failed to map segment" }, "libgorun", doctor.Warn, "failed to map", "XDG_CACHE_HOME"},
		{"files", func(f *doctor.Facts) { f.NoFile = 1024 }, "open files", doctor.Warn, "limit 1024", "nofile 65536"},
		{"processes", func(f *doctor.Facts) { f.NProc = 100 }, "processes", doctor.Warn, "limit 100", "nproc 65536"},
		{"shm", func(f *doctor.Facts) { f.Room[1] = doctor.Room{Dir: "/dev/shm", Free: 64 << 20, Size: 8 << 30} }, "/dev/shm", doctor.Warn, "64 MiB of 8.0 GiB free are little for the workers", "mount -o remount"},
		{"full", func(f *doctor.Facts) { f.Room[0].Free = 1 << 20 }, "/tmp", doctor.Fail, "1 MiB of 0 KiB free", "df -h /tmp"},
		{"quota", func(f *doctor.Facts) { f.Quota = 0.1 }, "CPU quota", doctor.Warn, "allows 0.1 CPUs", "cpu.max"},
		{"balloon", func(f *doctor.Facts) { f.Balloon = 2 << 30 }, "balloon", doctor.Warn, "2.0 GiB", "reserve"},
		{"steal", func(f *doctor.Facts) { f.Steal = 0.1 }, "steal", doctor.Warn, "10.0 %", "reserve"},
		{"queues", func(f *doctor.Facts) { f.Host.NICs[0].Queues = 1 }, "NIC ens1", doctor.Warn, "1 queue for 8 CPUs", "ethtool -L ens1 combined 8"},
		{"offloads", func(f *doctor.Facts) { f.Offloads = map[string]string{"ens1": "tso gro"} }, "NIC ens1", doctor.Warn, "tso gro switched off", "ethtool -K ens1 tso on gro on"},
		{"gpu", func(f *doctor.Facts) { f.GPUError = "no answer" }, "GPUs", doctor.Fail, "no answer", "nvidia-smi"},
		{"rdma", func(f *doctor.Facts) { f.RDMA = []doctor.Port{{Device: "mlx5_0", Number: "1", State: "DOWN"}} }, "RDMA", doctor.Warn, "mlx5_0 port 1 is DOWN", "ibstat mlx5_0"},
		{"verbs", func(f *doctor.Facts) {
			f.RDMA, f.Verbs = []doctor.Port{{Device: "mlx5_0", Number: "1", State: "ACTIVE"}}, "/dev/infiniband/uverbs0: permission denied"
		}, "RDMA", doctor.Warn, "uverbs0: permission denied", "modprobe ib_uverbs"},
		{"old RoCE", func(f *doctor.Facts) {
			f.RDMA = []doctor.Port{{Device: "mlx5_0", Number: "1", State: "ACTIVE"}}
			f.Host.RDMA = []topology.RDMA{{Name: "mlx5_0", NIC: "ens2", Ports: []topology.Port{{Number: 1, Link: "Ethernet", GIDs: []topology.GID{{Type: "IB/RoCE v1"}}}}}}
		}, "RDMA", doctor.Warn, "mlx5_0 port 1 has IB/RoCE v1, no RoCE v2", "give ens2 an IP address"},
		{"packets", func(f *doctor.Facts) {
			roce(f)
			f.Host.NICs[0].MTU = 1500
		}, "RDMA MTU", doctor.Warn, "mlx5_0 port 1: ens1 has 1500, so a packet has 1024 bytes or less", "mtu 9000"},
		{"losses", func(f *doctor.Facts) {
			roce(f)
			f.RDMA[0].PFC, f.RDMA[0].ECN = "off", ""
		}, "RDMA losses", doctor.Warn, "mlx5_0 port 1: neither PFC nor ECN is on", "dcb pfc set dev ens1 prio-pfc 3:on"},
		{"old libibverbs", func(f *doctor.Facts) {
			roce(f)
			f.Ibverbs = "1.8.28.0"
		}, "libibverbs", doctor.Warn, "1.8.28.0 is older than 33", "apt-get install libibverbs1"},
		{"no libibverbs", func(f *doctor.Facts) {
			roce(f)
			f.Ibverbs = ""
		}, "libibverbs", doctor.Warn, "libibverbs.so.1 is in none of the usual directories", "apt-get install libibverbs1"},
		{"memlock", func(f *doctor.Facts) {
			f.RDMA, f.MemLock = []doctor.Port{{Device: "mlx5_0", Number: "1", State: "ACTIVE"}}, 64<<10
		}, "locked memory", doctor.Warn, "64 KiB", "memlock unlimited"},
	} {
		f := healthy()
		tt.sicken(&f)
		var wrong []doctor.Finding
		for _, finding := range doctor.Judge(f) {
			if finding.Status != doctor.Pass {
				wrong = append(wrong, finding)
			}
		}
		if len(wrong) != 1 || wrong[0].Check != tt.check || wrong[0].Status != tt.status || !strings.Contains(wrong[0].Text, tt.text) || !strings.Contains(wrong[0].Fix, tt.fix) {
			t.Errorf("%s: found %+v", tt.name, wrong)
		}
	}
}

// roce gives a host a port that is as it should be.
func roce(f *doctor.Facts) {
	f.RDMA = []doctor.Port{{Device: "mlx5_0", Number: "1", State: "ACTIVE", PFC: "3", ECN: "3"}}
	f.Host.NICs[0].MTU = 9000
	f.Host.RDMA = []topology.RDMA{{Name: "mlx5_0", NIC: f.Host.NICs[0].Name,
		Ports: []topology.Port{{Number: 1, Active: true, Link: "Ethernet", GIDs: []topology.GID{{Type: "RoCE v2"}}}}}}
}

func TestParsePFC(t *testing.T) {
	for text, want := range map[string]string{
		"pfc-cap 8 macsec-bypass off delay 0 \nprio-pfc 0:off 1:off 2:off 3:on 4:on 5:off 6:off 7:off ": "3 4",
		"prio-pfc 0:off 1:off \n": "off", "": "",
	} {
		if got := doctor.ParsePFC(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestFrameworks are shown as the host describes them; none are no fault.
func TestFrameworks(t *testing.T) {
	for _, found := range []string{"", "JAX 0.10.2 by libgorun"} {
		f := healthy()
		f.Frameworks = found
		want := doctor.Finding{Host: "a", Check: "frameworks", Status: doctor.Pass, Text: cmp.Or(found, "python3 has none")}
		if !slices.Contains(doctor.Judge(f), want) {
			t.Errorf("no %+v among %+v", want, doctor.Judge(f))
		}
	}
}

func TestCompare(t *testing.T) {
	asked := time.Date(2026, 6, 5, 12, 0, 0, 0, time.UTC)
	answer := func(name string, skew time.Duration) doctor.Answer {
		f := healthy()
		// Two seconds of gathering do not make the comparison coarser.
		f.Host.Name, f.Clock, f.Gathering = name, asked.Add(2050*time.Millisecond+skew), 2*time.Second
		return doctor.Answer{Facts: f, Asked: asked, Came: asked.Add(2100 * time.Millisecond)}
	}
	all := []doctor.Answer{answer("a", 0), answer("b", 2*time.Second), answer("d", -400*time.Millisecond), answer("c", 120*time.Millisecond)}
	all[3].Facts.Python = "Python 3.9.1"
	for i := range all {
		all[i].Facts.Frameworks = "PyTorch 2.15.0 by Python"
	}
	all[2].Facts.Frameworks = ""
	all[0].Facts.Resolved, all[1].Facts.Resolved, all[2].Facts.Resolved = []string{"127.0.1.1"}, nil, []string{"10.0.0.2"}
	all[3].Facts.Resolved = []string{"10.0.0.3"}
	all[3].Facts.Host.NICs = []topology.NIC{{Name: "eth0", MTU: 1500, Up: true, Addrs: []string{"10.0.0.3/24"}}}
	var got []string
	for _, f := range doctor.Compare(all, nil) {
		if f.Status != doctor.Pass {
			got = append(got, f.Host+" "+f.Check+": "+f.Text)
		}
	}
	want := []string{
		"a host name: h is 127.0.1.1 here, by which other hosts cannot find Gloo",
		"b clock: 2s off the launcher's, ±50ms",
		"b host name: h is unknown here, so Gloo by itself takes the loopback",
		"d clock: -400ms off the launcher's, ±50ms",
		"d host name: h is 10.0.0.2 here, by which other hosts cannot find Gloo", // another host's
		"d frameworks: other ones than a has, which are: PyTorch 2.15.0 by Python",
		"c versions: Python 3.9.1, but a has Python 3.11.2",
		"c MTU: 1500, but a has 9000: large packets may be lost on the way",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestParse(t *testing.T) {
	sshd := doctor.ParseSshd("# x\nMaxStartups 10:30:100\nmaxstartups 1\nPort=22\nAllowUsers a b # c\nMatch User x\n MaxSessions 1\n")
	if want := (map[string]string{"maxstartups": "10:30:100", "port": "22", "allowusers": "a b"}); !reflect.DeepEqual(sshd, want) {
		t.Errorf("sshd: %v", sshd)
	}
	if got := doctor.ParseSteal("cpu  70 0 10 10 0 0 0 10 5 5\ncpu0 1\n"); got != 0.1 {
		t.Errorf("steal %v", got)
	}
	if got := doctor.ParseBalloon("MemTotal: 5 kB\nBalloon:     2048 kB\n"); got != 2<<20 {
		t.Errorf("balloon %v", got)
	}
	if got := doctor.ParseOffloads("Features for eth0:\nrx-checksumming: on\ntcp-segmentation-offload: off\n\ttx-tcp6-segmentation: off\ngeneric-receive-offload: off\ntx-checksumming: off [fixed]\n"); got != "tso gro" {
		t.Errorf("offloads %q", got)
	}
}

// FuzzParse: no text of a host makes a parser fail or an impossible value.
func FuzzParse(f *testing.F) {
	f.Add("cpu 1 2 3 4 5 6 7 8 9\nBalloon: 3 kB\nport 22\n")
	f.Add("prio-pfc 0:off 3:on")
	f.Add("GPU 00000000:3B:00.0\n    ECC Errors\n        Volatile\n            SRAM Uncorrectable : 99999999999\n")
	f.Add("\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n")
	f.Fuzz(func(t *testing.T, text string) {
		if s := doctor.ParseSteal(text); s < 0 || s > 1 || s != s {
			t.Fatalf("steal %v", s)
		}
		if b := doctor.ParseBalloon(text); b < 0 {
			t.Fatalf("balloon %v", b)
		}
		doctor.ParseSshd(text)
		doctor.ParseOffloads(text)
		doctor.ParsePFC(text)
		for _, g := range doctor.ParseGPUStates(text) {
			if g.Uncorrected < 0 {
				t.Fatalf("%+v", g)
			}
		}
		peers := doctor.ParsePeers(text)
		for _, n := range peers.Refused {
			peers.Pairs -= n
		}
		if peers.Pairs < 0 {
			t.Fatalf("%+v", peers)
		}
	})
}
