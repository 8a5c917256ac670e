package topology

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
	"gorun/topology/doctor"
)

// TestDoctor sees a healthy host, one that limps in three ways, one that lets no one in and one without power, names
// all of it with the way out, and finds the limping one well when its advice was taken.
func TestDoctor(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 4)
	limping := c.Host(2)
	c.Shell(limping, "ip link set dev eth0 mtu 1400 && mount -o remount,size=64M /dev/shm")
	few := unix.Rlimit{Cur: 512, Max: 512}
	must.Do(t, unix.Prlimit(limping.Processes()[0].PID, unix.RLIMIT_NOFILE, &few, nil))
	c.Shell(c.Host(3), "echo >/root/.ssh/authorized_keys")
	must.Do(t, c.Host(4).PowerOff())
	config := c.Config("doctor", "Host host4\n ConnectTimeout 2\n")
	examine := func(hosts string) (found map[string]doctor.Finding, code int) {
		t.Helper()
		r := c.Gorun("doctor", "--json", "--ssh-config", config, "-H", hosts)
		var all struct{ Findings []doctor.Finding }
		if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
			t.Fatalf("%v, exit code %d\n%s\n%s", err, r.Code, r.Stdout, r.Stderr)
		}
		found = map[string]doctor.Finding{}
		for _, f := range all.Findings {
			found[f.Host+" "+f.Check] = f
			if f.Status != doctor.Pass && f.Fix == "" {
				t.Errorf("no way out: %+v", f)
			}
		}
		return found, r.Code
	}
	found, code := examine("host1,host2,host3,host4")
	for check, want := range map[string]doctor.Finding{
		"host1 clock":      {Status: doctor.Pass, Text: "within "},
		"host1 open files": {Status: doctor.Pass, Text: "limit "},
		"host2 MTU":        {Status: doctor.Warn, Text: "1400, but host1 has 1500", Fix: "ip link set dev eth0 mtu 1500"},
		"host2 /dev/shm":   {Status: doctor.Warn, Text: "64 MiB", Fix: "mount -o remount,size="},
		"host2 open files": {Status: doctor.Warn, Text: "limit 512 is less than", Fix: "nofile"},
		"host3 reach":      {Status: doctor.Fail, Text: "authenticate: ", Fix: "ssh-copy-id"},
		"host4 reach":      {Status: doctor.Fail, Text: "connect: ", Fix: "is the host up"},
	} {
		if f, ok := found[check]; !ok || f.Status != want.Status || !strings.Contains(f.Text, want.Text) || !strings.Contains(f.Fix, want.Fix) {
			t.Errorf("%s: found %+v, want %+v", check, f, want)
		}
	}
	for _, f := range found {
		if f.Host == "host1" && f.Status == doctor.Fail {
			t.Errorf("of the healthy host: %+v", f)
		}
	}
	if code != 1 {
		t.Errorf("exit code %d with hosts that fail, want 1", code)
	}

	for _, check := range []string{"host2 MTU", "host2 /dev/shm"} {
		c.Shell(limping, found[check].Fix)
	}
	found, code = examine("host1,host2")
	for _, check := range []string{"host2 MTU", "host2 /dev/shm"} {
		if found[check].Status != doctor.Pass {
			t.Errorf("%s: the advice was taken, and it is %+v", check, found[check])
		}
	}
	if code != 0 {
		t.Errorf("exit code %d without a host that fails, want 0: %+v", code, found)
	}
	if r := c.Gorun("doctor", "--ssh-config", config, "-H", "host1,host3"); r.Code != 1 || !strings.Contains(r.Stdout, "FAIL  host3  reach") || !strings.Contains(r.Stdout, "→ ") {
		t.Errorf("exit code %d, and the table is\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
}

// TestLostJumboFrames: a job whose large packets are lost between two hosts, while small ones pass, goes on with small
// ones, and reports it, once for each side that finds it, with what to do.
func TestLostJumboFrames(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 2)
	for _, h := range c.Hosts() {
		// The other end of each cable stays at 1500. It would take what is left to the NIC to cut up, which is no packet yet.
		c.Shell(h, "ip link set dev eth0 mtu 9000 gso_max_segs 1")
	}
	r := c.Gorun("bench", "-H", "host1,host2", "-b", "4M", "-e", "4M", "--iters", "5")
	told := regexp.MustCompile(`(?m)^gorun: (host[12]): packets of 9000 bytes to (host[12]) are lost on the way, small ones arrive: going on with 1280 bytes, .*gorun doctor -H (host[12],host[12])$`)
	lines := told.FindAllString(r.Stderr, -1)
	if r.Code != 0 || len(lines) < 1 || len(lines) > 2 || !regexp.MustCompile(`(?m)^ +4194304 .* 0$`).MatchString(r.Stdout) {
		t.Errorf("exit code %d, told %q\n%s\n%s", r.Code, lines, r.Stdout, r.Stderr)
	}
}
