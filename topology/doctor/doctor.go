// Package doctor judges whether a host is fit for a job. Gather reads what the host reports about itself; Judge checks one
// host, Compare checks what must agree on all hosts, and JudgePaths what paths carry. Gather alone does I/O. The package
// changes nothing, measures nothing over the network, and starts no goroutine.
package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorun/topology"
)

// Facts is a host's report about itself.
type Facts struct {
	Host    topology.Host `json:"host"`
	Version string        `json:"version"` // of gorun
	Kernel  string        `json:"kernel"`
	Python  string        `json:"python"` // output of python3 --version, "" if there is none
	Native  string        `json:"native"` // NativeLoads and from where, or why libgorun does not load, "" if unknown

	// Frameworks lists what python3 has, with versions and what carries out their operations; "" for none.
	Frameworks string    `json:"frameworks"`
	Clock      time.Time `json:"clock"`

	// Gathering is how long the host took to collect these facts, before it read its clock.
	Gathering time.Duration `json:"gathering_ns"`

	// Resolved is what the host's own name is to itself, empty if it is unknown there.
	Resolved []string `json:"resolved"`

	Sshd     map[string]string `json:"sshd"`      // settings of its sshd, by lower-case keyword, as far as readable
	Room     []Room            `json:"room"`      // where jobs write
	Quota    float64           `json:"quota"`     // CPUs that the control group allows, 0 for no limit
	Ports    string            `json:"ports"`     // first and last that the kernel chooses
	NoFile   uint64            `json:"nofile"`    // limit of open files
	NProc    uint64            `json:"nproc"`     // limit of processes
	MemLock  uint64            `json:"memlock"`   // limit of locked memory in bytes
	Balloon  int64             `json:"balloon"`   // bytes that the hypervisor took back
	Steal    float64           `json:"steal"`     // share of CPU time since boot that the hypervisor gave to other machines
	Offloads map[string]string `json:"offloads"`  // NIC → offloads that are switched off
	GPUError string            `json:"gpu_error"` // why the driver of present GPUs does not answer
	RDMA     []Port            `json:"rdma"`

	// GPUStates has an entry for each GPU, in nvidia-smi's order. It is empty where nvidia-smi does not answer.
	GPUStates []GPUState `json:"gpu_states,omitempty"`
	GPUPeers  Peers      `json:"gpu_peers"`
	// GPULibraries is nil on hosts without GPUs, and where python3 cannot look.
	GPULibraries *GPULibraries `json:"gpu_libraries,omitempty"`
	// Verbs is why this user cannot open what programs reach RDMA devices by, "" if that works or there is none.
	Verbs string `json:"verbs"`
	// Ibverbs is the version of libibverbs, "" if there is none where libraries mostly are.
	Ibverbs string `json:"ibverbs"`
}

// NativeLoads begins the word of a libgorun that Python can load.
const NativeLoads = "loads"

func nativeFix(why string) string {
	if strings.Contains(why, "comes without it") {
		return "make zig-ready build, and use that gorun"
	}
	return "a Python 3.9 or newer for glibc 2.17 or newer, and a cache ($XDG_CACHE_HOME) from which the user may execute"
}

// Room is what a directory has for files, in bytes.
type Room struct {
	Dir  string `json:"dir"`
	Free int64  `json:"free"`
	Size int64  `json:"size"`
}

// Port is a port of an RDMA device.
type Port struct {
	Device string `json:"device"`
	Number string `json:"port"`
	State  string `json:"state"` // "ACTIVE", "DOWN", …
	// What keeps its NIC from losing packets of RoCE, as far as that is readable: "off", or priorities as in "3" or "3 4".
	PFC string `json:"pfc,omitempty"`
	ECN string `json:"ecn,omitempty"`
}

// Status of a finding.
type Status string

// The statuses, from good to bad.
const (
	Pass Status = "PASS"
	Warn Status = "WARN"
	Fail Status = "FAIL"
)

// Finding is the result of one check on one host.
type Finding struct {
	Host   string `json:"host"`
	Check  string `json:"check"`
	Status Status `json:"status"`
	Text   string `json:"text"`
	Fix    string `json:"fix,omitempty"` // the command that repairs it
}

// Limits below which a host is not fit, or not fast.
const (
	leastFiles = 4096
	leastProcs = 1024
	leastShm   = 512 << 20 // in /dev/shm
	leastRoom  = 256 << 20 // elsewhere
	fullRoom   = 16 << 20
	leastQuota = 1 // CPU
	mostSteal  = 0.02
	mostSkew   = 100 * time.Millisecond
)

// Judge checks a single host.
func Judge(f Facts) []Finding {
	j := judge{host: f.Host.Name}
	j.sshd(f)
	j.check("python", f.Python != "", f.Python, Warn, "there is no python3", "apt-get install python3")
	if f.Python != "" {
		why := cmp.Or(f.Native, "python3 cannot import gorun")
		j.check("libgorun", strings.HasPrefix(f.Native, NativeLoads), f.Native, Warn, "programs in Python cannot join a job: "+why, nativeFix(f.Native))
		j.add("frameworks", Pass, cmp.Or(f.Frameworks, "python3 has none"), "")
	}
	j.check("open files", f.NoFile >= leastFiles, fmt.Sprint("limit ", f.NoFile), Warn, fmt.Sprintf("limit %d is less than %d", f.NoFile, leastFiles), "echo '* - nofile 65536' >/etc/security/limits.d/gorun.conf")
	j.check("processes", f.NProc >= leastProcs, fmt.Sprint("limit ", f.NProc), Warn, fmt.Sprintf("limit %d is less than %d", f.NProc, leastProcs), "echo '* - nproc 65536' >/etc/security/limits.d/gorun-nproc.conf")
	cpus := cmp.Or(f.Quota, float64(max(f.Host.CPUs, 1)))
	j.check("CPU quota", cpus >= leastQuota, fmt.Sprintf("%.3g CPUs", cpus), Warn,
		fmt.Sprintf("its control group allows %.2g CPUs", cpus), "raise cpu.max, CPUQuota= of the unit, or the container's limit of CPUs")
	for _, r := range f.Room {
		j.room(r)
	}
	j.check("balloon", f.Balloon == 0, "none", Warn, size(f.Balloon)+" were taken back by the hypervisor", "reserve the VM's memory: govc vm.change -vm NAME -mem.reservation MB")
	j.check("steal", f.Steal <= mostSteal, fmt.Sprintf("%.1f %% of CPU time", 100*f.Steal), Warn, fmt.Sprintf("%.1f %% of CPU time went to other VMs", 100*f.Steal), "reserve the VM's CPUs, or move it to a machine with fewer")
	j.nics(f)
	j.gpus(f)
	j.rdma(f)
	return j.findings
}

type judge struct {
	host     string
	findings []Finding
}

func (j *judge) add(check string, s Status, text, fix string) {
	j.findings = append(j.findings, Finding{j.host, check, s, text, fix})
}

// check adds Pass with what is good, or s with what is wrong and how to fix it.
func (j *judge) check(name string, ok bool, good string, s Status, wrong, fix string) {
	if ok {
		j.add(name, Pass, good, "")
	} else {
		j.add(name, s, wrong, fix)
	}
}

// room checks what is free for shared memory, temporary files, or gorun's program.
func (j *judge) room(r Room) {
	least, wants, fix := int64(leastRoom), "what jobs write there", "df -h "+r.Dir+"; df -i "+r.Dir
	if r.Dir == "/dev/shm" {
		least, wants, fix = leastShm, "the workers of a DataLoader", "ls -l /dev/shm; mount -o remount,size=8G /dev/shm"
	}
	left := fmt.Sprintf("%s of %s free", size(r.Free), size(r.Size))
	status := Warn
	if r.Free < fullRoom {
		status = Fail
	}
	j.check(r.Dir, r.Free >= least, left, status, left+" are little for "+wants, fix)
}

// sshd checks the limits that many logins run into. gorun needs one session on one connection.
func (j *judge) sshd(f Facts) {
	if len(f.Sshd) == 0 {
		j.add("sshd", Pass, "its settings are not readable here", "")
		return
	}
	if f.Sshd["maxsessions"] == "0" {
		j.add("sshd", Fail, "MaxSessions 0 allows no command", "sed -i 's/^MaxSessions.*/MaxSessions 10/' /etc/ssh/sshd_config && systemctl reload sshd")
		return
	}
	var said []string
	for _, key := range []string{"MaxStartups", "MaxSessions", "LoginGraceTime"} {
		if v := f.Sshd[strings.ToLower(key)]; v != "" {
			said = append(said, key+" "+v)
		}
	}
	// The first number of 10:30:100 is how many logins may be in progress before sshd drops some.
	first, _, _ := strings.Cut(f.Sshd["maxstartups"], ":")
	if n, err := strconv.Atoi(first); err == nil && n < fewStartups {
		j.add("sshd", Warn, fmt.Sprintf("MaxStartups %s drops logins when %d come at once", f.Sshd["maxstartups"], n+1),
			"sed -i 's/^MaxStartups.*/MaxStartups 100:30:200/' /etc/ssh/sshd_config && systemctl reload sshd")
		return
	}
	j.add("sshd", Pass, strings.Join(said, ", "), "")
}

// fewStartups is OpenSSH's default for MaxStartups; gorun's logins to one host stay below it.
const fewStartups = 10

func (j *judge) nics(f Facts) {
	for _, n := range f.Host.NICs {
		if !n.Up || len(n.Addrs) == 0 || n.Name == "lo" {
			continue
		}
		switch off := f.Offloads[n.Name]; {
		case off != "":
			j.add("NIC "+n.Name, Warn, off+" switched off", fmt.Sprintf("ethtool -K %s %s on", n.Name, strings.ReplaceAll(off, " ", " on ")))
		case n.Queues == 1 && f.Host.CPUs >= 4 && n.Driver != "veth":
			j.add("NIC "+n.Name, Warn, "1 queue for "+topology.Count(f.Host.CPUs, "CPU"), fmt.Sprintf("ethtool -L %s combined %d", n.Name, min(f.Host.CPUs, 8)))
		default:
			j.add("NIC "+n.Name, Pass, strings.TrimSpace(fmt.Sprintf("%s MTU %d, %s", n.Driver, n.MTU, topology.Count(n.Queues, "queue"))), "")
		}
	}
}

func (j *judge) rdma(f Facts) {
	if len(f.RDMA) == 0 {
		j.add("RDMA", Pass, "none", "")
	}
	for _, p := range f.RDMA {
		j.check("RDMA", p.State == "ACTIVE", fmt.Sprintf("%s port %s active", p.Device, p.Number), Warn,
			fmt.Sprintf("%s port %s is %s", p.Device, p.Number, p.State), "ibstat "+p.Device+"; rdma link")
	}
	if len(f.RDMA) > 0 {
		wrong := f.Ibverbs + " is older than 33 of rdma-core"
		if f.Ibverbs == "" {
			wrong = "libibverbs.so.1 is in none of the usual directories"
		}
		j.check("libibverbs", f.Ibverbs != "" && !tooOld(f.Ibverbs), f.Ibverbs, Warn, wrong, "apt-get install libibverbs1 ibverbs-providers")
		for _, d := range f.Host.RDMA {
			for _, p := range d.Ports {
				j.roce(f, d, p)
				if old := oldRoCE(p); old != "" {
					j.add("RDMA", Warn, fmt.Sprintf("%s port %d has %s, no RoCE v2", d.Name, p.Number, old), "give "+cmp.Or(d.NIC, "its NIC")+" an IP address")
				}
			}
		}
		if f.Verbs != "" {
			j.add("RDMA", Warn, f.Verbs, "modprobe ib_uverbs; apt-get install rdma-core ibverbs-providers")
		}
		const enough, unlimited = 1 << 30, 1 << 40 // 40 links of up to 25 MiB
		limit := size(int64(min(f.MemLock, 1<<62)))
		if f.MemLock >= unlimited {
			limit = "unlimited"
		}
		j.check("locked memory", f.MemLock >= enough, limit, Warn, limit+" are too little for RDMA: a link to another host takes up to 25 MiB", "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf")
	}
}

// roce checks what is below an Ethernet port: the size of packets, and what keeps them from being lost.
func (j *judge) roce(f Facts, d topology.RDMA, p topology.Port) {
	if p.Link != "Ethernet" || !p.Active {
		return
	}
	name := fmt.Sprintf("%s port %d", d.Name, p.Number)
	if i := slices.IndexFunc(f.Host.NICs, func(n topology.NIC) bool { return n.Name == d.NIC }); i >= 0 && f.Host.NICs[i].MTU > 0 {
		mtu := f.Host.NICs[i].MTU
		j.check("RDMA MTU", mtu >= jumbo, fmt.Sprintf("%s: %s has %d", name, d.NIC, mtu), Warn,
			fmt.Sprintf("%s: %s has %d, so a packet has 1024 bytes or less", name, d.NIC, mtu), fmt.Sprintf("ip link set dev %s mtu 9000, and on the switch", d.NIC))
	}
	for _, port := range f.RDMA {
		if port.Device == d.Name && port.Number == strconv.Itoa(p.Number) && port.PFC+port.ECN != "" {
			j.check("RDMA losses", port.PFC != "off" || port.ECN != "off" && port.ECN != "", fmt.Sprintf("%s: PFC %s, ECN %s", name, cmp.Or(port.PFC, "unknown"), cmp.Or(port.ECN, "unknown")), Warn,
				name+": neither PFC nor ECN is on, so a full switch loses packets", fmt.Sprintf("dcb pfc set dev %s prio-pfc 3:on, and on the switch; --rdma-options class=106", d.NIC))
		}
	}
}

// jumbo is the MTU of a NIC below which the packets of RoCE have 1024 bytes or less.
const jumbo = 2200

// tooOld reports whether a version of libibverbs, as its file has it ("1.14.44.0"), lacks what gorun needs.
func tooOld(version string) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 3 {
		return false // unknown
	}
	n, err := strconv.Atoi(parts[2])
	return err == nil && n < 33
}

// oldRoCE returns what GIDs an Ethernet port has if none is of RoCE v2, which routers pass on; "" if it has such a GID.
func oldRoCE(p topology.Port) string {
	if p.Link != "Ethernet" || slices.ContainsFunc(p.GIDs, func(g topology.GID) bool { return strings.HasSuffix(g.Type, "v2") }) {
		return ""
	}
	if len(p.GIDs) == 0 {
		return "no GID"
	}
	return p.GIDs[0].Type
}

// Answer is a host's facts, with the times of the request and the answer, and the address at which data finds the host
// first, if that is known.
type Answer struct {
	Facts       Facts
	At          netip.Addr
	Asked, Came time.Time
}

// Compare checks what must agree on all hosts: clocks, Pythons, NCCL, and the NICs between them that the user's list selects.
func Compare(all []Answer, nics []string) []Finding {
	var out []Finding
	for i, a := range all {
		j := judge{host: a.Facts.Host.Name}
		// It read its clock between the end of its gathering, if that began at once, and the arrival of the answer.
		half := max(a.Came.Sub(a.Asked)-max(a.Facts.Gathering, 0), 0) / 2
		skew := a.Facts.Clock.Sub(a.Came.Add(-half))
		j.check("clock", skew.Abs() <= mostSkew+half, fmt.Sprintf("within %v of the launcher's", (skew.Abs()+half).Round(time.Millisecond)), Warn,
			fmt.Sprintf("%v off the launcher's, ±%v", skew.Round(time.Millisecond), half.Round(time.Millisecond)), "timedatectl set-ntp true, or chronyc makestep")
		mine, addr := mainNIC(a.Facts.Host, nics, a.At)
		if len(nics) > 0 {
			j.check("NIC for data", addr.IsValid(), fmt.Sprintf("%s %s %s", mine.Name, mine.Driver, addr), Fail,
				"none of "+strings.Join(nics, ",")+" is up here", "ip -br address; --network-interfaces takes names, drivers and networks")
		}
		if len(all) > 1 {
			j.name(a.Facts)
		}
		if i > 0 {
			first := all[0].Facts
			j.check("versions", a.Facts.Python == first.Python, strings.Trim(fmt.Sprintf("%s, Linux %s", a.Facts.Python, a.Facts.Kernel), ", "), Warn, fmt.Sprintf("%s, but %s has %s", a.Facts.Python, first.Host.Name, first.Python), "install the same Python on all hosts")
			j.check("frameworks", a.Facts.Frameworks == first.Frameworks, "as "+first.Host.Name+" has", Warn,
				fmt.Sprintf("other ones than %s has, which are: %s", first.Host.Name, cmp.Or(first.Frameworks, "none")), "install the same versions on all hosts")
			j.compareGPUs(first, a.Facts)
			theirs, _ := mainNIC(first.Host, nics, all[0].At)
			j.check("MTU", mine.MTU == theirs.MTU || mine.MTU == 0 || theirs.MTU == 0, fmt.Sprint(mine.MTU), Warn,
				fmt.Sprintf("%d, but %s has %d: large packets may be lost on the way", mine.MTU, first.Host.Name, theirs.MTU), fmt.Sprintf("ip link set dev %s mtu %d", mine.Name, theirs.MTU))
		}
		out = append(out, j.findings...)
	}
	return out
}

// name checks the address of the host's own name, by which Gloo, TensorPipe and MPICH publish where they are. Ranks get
// variables that say better, but what clears its environment does not.
func (j *judge) name(f Facts) {
	const fix = "give the name the host's address in /etc/hosts; until then what ranks start must keep their GLOO_SOCKET_IFNAME and its like"
	own := func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && !a.IsLoopback() && f.Host.NICAt(a) != ""
	}
	wrong := fmt.Sprintf("%s is %s here, by which other hosts cannot find Gloo", f.Host.Hostname, strings.Join(f.Resolved, " "))
	if len(f.Resolved) == 0 {
		wrong = f.Host.Hostname + " is unknown here, so Gloo by itself takes the loopback"
	}
	j.check("host name", len(f.Resolved) > 0 && own(f.Resolved[0]), fmt.Sprint(f.Host.Hostname, " is ", strings.Join(f.Resolved, " ")), Warn, wrong, fix)
}

// size renders bytes.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
