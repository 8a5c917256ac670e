package topology

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
	"gorun/topology/doctor"
)

// sick is a fault that doctor should name. In its texts HOST stands for a host that the seed chooses of two, and OTHER
// for the other one.
type sick struct {
	name  string
	shell string // what plants it on HOST
	both  string // what else both need
	plant func(t *testing.T, c *e2etest.Cluster, h *lab.LabHost)
	args  string
	want  string // all that is not in order, line by line; "" for nothing
}

const full = "mkdir -p DIR && mount -t tmpfs -o size=1m lab DIR && ! head -c 2M /dev/zero >DIR/full 2>/dev/null"

// sicks are planted one by one. make test plants every second one.
var sicks = []sick{
	{name: "sound"},
	{name: "no ICMP", shell: "iptables -A INPUT -p icmp -j DROP; iptables -A OUTPUT -p icmp -j DROP"},
	{name: "TCP dropped", shell: "iptables -A INPUT -i eth0 -p tcp ! --dport 22 --syn -j DROP",
		want: `FAIL HOST ports: nothing arrives by TCP \(i/o timeout\) from OTHER \(eth0 [0-9.]+\) at ports of HOST \(eth0 [0-9.]+\), as behind a firewall`},
	{name: "TCP rejected", shell: "iptables -A INPUT -i eth0 -p tcp ! --dport 22 --syn -j REJECT --reject-with tcp-reset",
		want: `FAIL HOST ports: nothing arrives by TCP \(connection refused\) from OTHER .*`},
	{name: "UDP dropped", shell: "iptables -A INPUT -i eth0 -p udp -j DROP",
		want: `FAIL HOST ports: nothing arrives by UDP from OTHER .*`},
	{name: "UDP kept in", shell: "iptables -A OUTPUT -p udp -j DROP",
		want: `FAIL HOST ports: nothing arrives by UDP \(.*operation not permitted\) from HOST .*`},
	{name: "all ports", shell: "iptables -A INPUT -i eth0 -p udp -j REJECT; iptables -A INPUT -i eth0 -p tcp ! --dport 22 --syn -j REJECT --reject-with icmp-admin-prohibited",
		want: `FAIL HOST ports: nothing arrives by TCP \(no route to host\) and UDP from OTHER .*`},
	{name: "wrong NIC", both: "ip link add aside type veth peer name nowhere && ip link set nowhere up && ip link set aside up && ip address add 192.0.2.$(hostname | tr -dc 0-9)/24 dev aside",
		args: "--network-interfaces aside", want: `(?:FAIL host[12] NIC for data: nothing arrives by TCP \(.*\) and UDP.* but at eth0: aside is the wrong NIC\n?){2}`},
	{name: "full /tmp", shell: strings.ReplaceAll(full, "DIR", "/tmp"), want: `FAIL HOST /tmp: 0 KiB of 1 MiB free .*`},
	{name: "full cache", shell: strings.ReplaceAll(full, "DIR", "/root/.cache"), want: `FAIL HOST /root/.cache: 0 KiB of 1 MiB free .*`},
	{name: "full /dev/shm", shell: "mount -o remount,nr_inodes=3 /dev/shm && touch /dev/shm/a /dev/shm/b", want: `FAIL HOST /dev/shm: 0 KiB of [0-9.]+ GiB free .*`},
	{name: "little /dev/shm", shell: "mount -o remount,size=64M /dev/shm", want: `WARN HOST /dev/shm: 64 MiB of 64 MiB free .*`},
	// What is slow for lack of CPU time may be named, too.
	{name: "CPU quota", plant: quota, want: `(?s)(?:.*\n)?WARN HOST CPU quota: its control group allows 0.1 CPUs.*`},
	{name: "losses", plant: func(t *testing.T, c *e2etest.Cluster, h *lab.LabHost) {
		wire, err := c.AddWire(c.Host(1), c.Host(2), lab.Faults{Lost: 0.05}, 1)
		must.Do(t, err)
		t.Cleanup(func() { wire.Close() })
	}, want: `WARN host1 path to host2: [0-9.]+ % of the packets from eth0 to 10\.77\.0\.2 are lost\nWARN host2 path to host1: .* are lost`},
	{name: "slow link", plant: func(t *testing.T, c *e2etest.Cluster, h *lab.LabHost) {
		must.Do(t, h.SetLink(lab.Link{Rate: 5e6}))
	}, want: `WARN host1 path to host2: [0-9.]+ Mbit/s from eth0 to 10\.77\.0\.2 is little for data\nWARN host2 path to host1: .* is little for data`},
	{name: "lost jumbo frames", both: "ip link set dev eth0 mtu 9000", // the other end of its cable, a port of the switch, stays at 1500
		want: `FAIL host1 path to host2: packets of 9000 bytes are lost on the way, those of 1500 arrive.*\nFAIL host2 path to host1: packets of 9000 .*`},
	{name: "narrow path", plant: narrow(1200), want: `FAIL host1 path to host2: packets of 1500 bytes are lost on the way, those of 1200 arrive: connections open and then hang\nFAIL host2 .*`},
	{name: "narrowest path", plant: narrow(400), want: `FAIL host1 path to host2: packets of 576 bytes are lost on the way, only those of 100 arrive: no data passes\nFAIL host2 .*`},
	{name: "two names", args: "-H HOST,10.77.0.N", want: `FAIL 10\.77\.0\.. machine: the same machine as HOST, under two names`},
}

// narrow has the path between the hosts lose packets of more bytes.
func narrow(largest int) func(t *testing.T, c *e2etest.Cluster, h *lab.LabHost) {
	return func(t *testing.T, c *e2etest.Cluster, h *lab.LabHost) {
		wire, err := c.AddWire(c.Host(1), c.Host(2), lab.Faults{Largest: largest}, 1)
		must.Do(t, err)
		t.Cleanup(func() { wire.Close() })
	}
}

// group is the control group of a host with a quota. It is the machine's.
var group = fmt.Sprint("gorun-doctor-", os.Getpid())

// quota gives a host a tenth of a CPU.
func quota(t *testing.T, c *e2etest.Cluster, h *lab.LabHost) {
	out, err := h.Exec(t.Context(), "sh", "-ec", `
		if grep -q ':cpu[:,]' /proc/self/cgroup; then
			mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/cpu
			at=/sys/fs/cgroup/cpu && mount -t cgroup -o "$(sed -n 's/^[0-9]*:\(cpu\|cpu,cpuacct\):.*/\1/p' /proc/self/cgroup)" none $at
			mkdir $at/`+group+` && echo 100000 >$at/`+group+`/cpu.cfs_period_us && echo 10000 >$at/`+group+`/cpu.cfs_quota_us
		else
			at=/sys/fs/cgroup && mount -t cgroup2 none $at
			mkdir $at/`+group+` && echo 10000 100000 >$at/`+group+`/cpu.max
		fi
		echo 1 >$at/`+group+`/cgroup.procs`)
	if err != nil {
		t.Fatal(err, out)
	}
}

// TestDoctorNamesFaults plants faults that make jobs fail or slow, one by one, on a host that the seed chooses, and
// wants each named by host and cause, and nothing else.
func TestDoctorNamesFaults(t *testing.T) {
	const seed = 1
	t.Cleanup(func() { // after the labs have ended
		for _, at := range []string{"", "cpu", "unified"} {
			os.Remove(filepath.Join("/sys/fs/cgroup", at, group))
		}
	})
	_, noTables := exec.LookPath("iptables")
	for i, f := range sicks {
		t.Run(f.name, func(t *testing.T) {
			if testing.Short() && i%2 == seed%2 && i > 0 {
				t.Skip("a part of make test-all")
			}
			if noTables != nil && strings.Contains(f.shell, "iptables") {
				t.Skip("iptables is not installed")
			}
			c := e2etest.NewCluster(t, 2)
			n := 1 + rand.New(rand.NewPCG(seed, uint64(i))).IntN(2)
			fill := strings.NewReplacer("HOST", fmt.Sprint("host", n), "OTHER", fmt.Sprint("host", 3-n), "0.N", fmt.Sprint("0.", n)).Replace
			for _, h := range c.Hosts() {
				for _, line := range []string{f.both, map[bool]string{true: f.shell}[h == c.Host(n)]} {
					if out, err := h.Exec(t.Context(), "sh", "-ec", fill(line)); err != nil {
						t.Fatal(err, out)
					}
				}
			}
			if f.plant != nil {
				f.plant(t, c, c.Host(n))
			}
			args := append([]string{"doctor", "--json", "-H", "host1,host2"}, strings.Fields(fill(f.args))...)
			r := c.GorunBeside(args...)
			c.Host(n).Exec(t.Context(), "sh", "-c", "rm -rf /tmp/* /root/.cache/* /dev/shm/*") // what the fault has filled
			c.ExpectNothingLeft(5 * time.Second)
			var all struct{ Findings []doctor.Finding }
			if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
				t.Fatalf("%v, exit code %d\n%s\n%s", err, r.Code, r.Stdout, r.Stderr)
			}
			var wrong []string
			for _, found := range all.Findings {
				if found.Status != doctor.Pass {
					wrong = append(wrong, fmt.Sprintf("%s %s %s: %s", found.Status, found.Host, found.Check, found.Text))
				}
			}
			got, code := strings.Join(wrong, "\n"), 0
			if strings.Contains(f.want, "FAIL") {
				code = 1
			}
			if !regexp.MustCompile("^"+fill(f.want)+"$").MatchString(got) || r.Code != code {
				t.Errorf("exit code %d, want %d and\n%s\nin\n%s", r.Code, code, fill(f.want), got)
			}
		})
	}
}
