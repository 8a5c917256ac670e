package signs

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gorun/rendezvous/wire"
	"gorun/topology/probe"
	"gorun/worker/proc"
)

const (
	// mostThreads and mostFiles bound what a Look reads.
	mostThreads = 1024
	mostFiles   = 256
	// leastRival is the share of a CPU from which on another command is named.
	leastRival = 0.05
)

// Look is what some processes are seen to do.
type Look struct {
	began    time.Time
	ranks    map[int]*glance
	machine  map[int]proc.Process // all processes
	stolen   int64                // ticks that the hypervisor took, of all CPUs
	children map[int][]int
}

// glance is what a process shows at one moment.
type glance struct {
	stat      proc.Process
	main      int
	threads   map[int]thread
	swapped   int64
	throttled int64 // nanoseconds
	killed    int64 // processes, for lack of memory
}

// Begin starts a look at the processes of ranks.
func Begin(pids []int) *Look {
	l := &Look{began: time.Now(), ranks: map[int]*glance{}}
	for _, pid := range pids {
		if g := glanceAt(pid); g != nil {
			l.ranks[pid] = g
		}
	}
	l.machine, l.stolen = everything(), stolen()
	return l
}

// End returns what was seen since Begin, by process.
func (l *Look) End() map[int]*wire.Signs {
	window := time.Since(l.began)
	now, steal := everything(), stolen()
	l.children = map[int][]int{}
	for pid, s := range now {
		l.children[s.Parent] = append(l.children[s.Parent], pid)
	}
	rival, used := l.rival(now)
	all := map[int]*wire.Signs{}
	for pid, then := range l.ranks {
		g := glanceAt(pid)
		if g == nil {
			continue
		}
		s := &signs{Window: window.Microseconds(), Faults: g.stat.Faults - then.stat.Faults, Swapped: g.swapped,
			Throttled: max(g.throttled-then.throttled, 0) / 1000, Killed: g.killed,
			Stolen: (steal - l.stolen) * proc.Tick.Microseconds() / int64(max(cpus(), 1))}
		if s.Throttled > 0 {
			s.Quota = probe.Quota("/", strconv.Itoa(pid))
		}
		if window > 0 && float64(used) >= leastRival*float64(window) {
			s.Rival, s.RivalCPU = rival, used.Microseconds()
		}
		s.compare(then, g)
		s.Full, s.Dead = full(pid), dead(l.children[pid], now)
		s.Stuck, s.Beside = stuck(pid)
		s.Beside = append(s.Beside, hung(l.children[pid], now)...)
		all[pid] = (*wire.Signs)(s)
	}
	return all
}

// everything returns the processes of this machine, as far as they are visible.
func everything() map[int]proc.Process {
	table, _ := proc.ReadTable() // none if /proc is not mounted
	all := make(map[int]proc.Process, len(table))
	for _, p := range table {
		all[p.PID] = p
	}
	return all
}

// rival returns which command used most CPU time meanwhile, in all its processes, without the ranks, what they started, and
// this process.
func (l *Look) rival(now map[int]proc.Process) (name string, used time.Duration) {
	own := func(pid int) bool {
		self := pid == os.Getpid()
		for n := 0; pid > 1 && n < 100; n++ {
			if l.ranks[pid] != nil {
				return true
			}
			pid = now[pid].Parent
		}
		return self
	}
	type command struct {
		used           time.Duration
		pid, processes int
	}
	commands := map[string]command{}
	for pid, s := range now {
		if t := time.Duration(s.Ticks-l.machine[pid].Ticks) * proc.Tick; t > 0 && !own(pid) {
			c := commands[s.Command]
			commands[s.Command] = command{c.used + t, pid, c.processes + 1}
		}
	}
	for _, of := range slices.Sorted(maps.Keys(commands)) {
		c := commands[of]
		switch {
		case c.used <= used:
		case c.processes == 1:
			name, used = fmt.Sprintf("%s (process %d)", of, c.pid), c.used
		default:
			name, used = fmt.Sprintf("%s (%d processes)", of, c.processes), c.used
		}
	}
	return name, used
}

// stolen returns the CPU time that the hypervisor gave to other machines, in ticks.
func stolen() int64 {
	b, _ := os.ReadFile("/proc/stat")
	first, _, _ := bytes.Cut(b, []byte("\n"))
	f := strings.Fields(string(first))
	if len(f) < 9 {
		return 0
	}
	n, _ := strconv.ParseInt(f[8], 10, 64)
	return n
}

// Stolen returns the microseconds of each CPU that the hypervisor has given to other machines since this one began.
func Stolen() int64 { return stolen() * proc.Tick.Microseconds() / int64(max(cpus(), 1)) }

func cpus() int {
	b, _ := os.ReadFile("/proc/stat")
	return bytes.Count(b, []byte("\ncpu"))
}

func read(pid int, name string) []byte {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)) // nothing if it has ended or access is denied
	return b
}

// glanceAt reads what a process has done so far, nil if it has ended.
func glanceAt(pid int) *glance {
	s, ok := proc.Read(pid)
	if !ok {
		return nil
	}
	g := &glance{stat: s, main: pid, threads: map[int]thread{}}
	g.swapped = field(read(pid, "status"), "VmSwap") << 10
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range tasks[:min(len(tasks), mostThreads)] {
		at := "task/" + e.Name() + "/"
		id, _ := strconv.Atoi(e.Name())
		t := thread{switches: field(read(pid, at+"status"), "voluntary_ctxt_switches")}
		t.ran, t.ready = parseSchedstat(read(pid, at+"schedstat"))
		g.threads[id] = t
	}
	g.throttled = throttled(pid)
	g.killed = MemoryOf(pid).killed
	return g
}

// compare fills in what the threads of a process have done meanwhile.
func (s *signs) compare(then, now *glance) {
	for id, t := range now.threads {
		before := then.threads[id]
		ran, ready := (t.ran-before.ran)/1000, (t.ready-before.ready)/1000
		s.CPU += ran
		s.Ready = max(s.Ready, ready)
		if id == now.main {
			s.Main, s.Switches = ran, t.switches-before.switches
		} else {
			s.Busiest = max(s.Busiest, ran)
		}
	}
	s.Threads = len(now.threads)
}

// signs are wire.Signs with methods of this package.
type signs wire.Signs

// throttled returns how long the control groups of a process have kept it from running, in nanoseconds.
func throttled(pid int) (most int64) {
	for dir := range probe.ControlGroups("/", strconv.Itoa(pid), "cpu") {
		b, _ := os.ReadFile(filepath.Join("/", dir, "cpu.stat"))
		most = max(most, field(b, "throttled_usec")*1000, field(b, "throttled_time"))
	}
	return most
}

// Memory is the control group of a process, and how many of its processes the kernel had ended for lack of memory. The
// zero value is that of a process without one.
type Memory struct {
	group  string // its directory
	killed int64
}

// MemoryOf returns the group of a process as it is now.
func MemoryOf(pid int) Memory { return memoryOf("/", pid) }

func memoryOf(root string, pid int) (m Memory) {
	for dir := range probe.ControlGroups(root, strconv.Itoa(pid), "memory") {
		m.group = filepath.Join(root, dir)
		break
	}
	m.killed = m.now()
	return m
}

// now returns how many processes of the group the kernel has ended for lack of memory.
func (m Memory) now() int64 {
	for _, name := range []string{"memory.events", "memory.oom_control"} { // of version 2 and 1
		if b, err := os.ReadFile(filepath.Join(m.group, name)); err == nil {
			return field(b, "oom_kill")
		}
	}
	return 0
}

// Short reports whether the kernel has ended another process since.
func (m Memory) Short() bool { return m.group != "" && m.now() > m.killed }

// System calls that wait for a file, with the index of the argument that is its descriptor, or the address of its path.
var (
	byDescriptor = map[int]int{unix.SYS_READ: 0, unix.SYS_PREAD64: 0, unix.SYS_READV: 0, unix.SYS_WRITE: 0, unix.SYS_PWRITE64: 0,
		unix.SYS_FSTAT: 0, unix.SYS_GETDENTS64: 0, unix.SYS_FSYNC: 0, unix.SYS_FDATASYNC: 0, unix.SYS_CLOSE: 0,
		unix.SYS_FLOCK: 0, unix.SYS_FCNTL: 0, unix.SYS_RECVFROM: 0, unix.SYS_RECVMSG: 0, unix.SYS_SENDTO: 0, unix.SYS_CONNECT: 0}
	byPath = map[int]int{unix.SYS_OPENAT: 1, unix.SYS_STATX: 1, unix.SYS_NEWFSTATAT: 1, unix.SYS_FACCESSAT: 1, unix.SYS_FACCESSAT2: 1,
		unix.SYS_READLINKAT: 1, unix.SYS_UNLINKAT: 1, unix.SYS_MKDIRAT: 1}
)

// stuck names the file that the main thread of a process waits for, "" if it waits for none, or else the other end of the
// connection. Nothing here touches the file, as that might wait, too.
func stuck(pid int) (file string, beside []string) {
	f := strings.Fields(string(read(pid, "syscall")))
	if len(f) < 7 {
		return "", nil
	}
	number, err := strconv.Atoi(f[0])
	if err != nil {
		return "", nil
	}
	argument := func(i int) uint64 {
		n, _ := strconv.ParseUint(strings.TrimPrefix(f[1+i], "0x"), 16, 64)
		return n
	}
	path := ""
	if i, ok := byDescriptor[number]; ok {
		path, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, argument(i)))
	} else if i, ok := byPath[number]; ok {
		path = textAt(pid, argument(i))
	}
	if socket, ok := strings.CutPrefix(path, "socket:["); ok {
		if peer := parsePeer(slices.Concat(read(pid, "net/tcp"), read(pid, "net/tcp6")), strings.TrimSuffix(socket, "]")); peer != "" {
			beside = []string{"the other end is " + peer}
		}
	}
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/") {
		return "", beside // a pipe, a socket or a device
	}
	file = fmt.Sprintf("%s (%s)", path, cmp.Or(mountOf(parseMounts(read(pid, "mountinfo")), path).kind, "unknown file system"))
	if locks, _ := os.ReadFile("/proc/locks"); number == unix.SYS_FLOCK || number == unix.SYS_FCNTL {
		if holder := parseHolder(locks, pid); holder > 0 {
			s, _ := proc.Read(holder)
			file += fmt.Sprintf(", which process %d (%s) has locked", holder, s.Command)
		}
	}
	return file, nil
}

// textAt reads a string in the memory of a process.
func textAt(pid int, at uint64) string {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return ""
	}
	defer mem.Close()
	b := make([]byte, unix.PathMax)
	n, _ := mem.ReadAt(b, int64(at)) // less where the mapping ends
	text, _, ok := bytes.Cut(b[:n], []byte{0})
	if !ok {
		return ""
	}
	return string(text)
}

// local are file systems whose state can be asked without waiting for another machine or process.
var local = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "f2fs"}

// full names the file system without space that a process has open for writing, or works in; "" if there is none.
func full(pid int) string {
	mounts := parseMounts(read(pid, "mountinfo"))
	seen := map[string]bool{}
	check := func(path string) bool {
		m := mountOf(mounts, path)
		if !strings.HasPrefix(path, "/") || seen[m.point] || !slices.Contains(local, m.kind) {
			return false
		}
		seen[m.point] = true
		var st unix.Statfs_t
		return unix.Statfs(m.point, &st) == nil && st.Blocks > 0 && (st.Bavail == 0 || st.Files > 0 && st.Ffree == 0)
	}
	dir := fmt.Sprintf("/proc/%d/", pid)
	if path, err := os.Readlink(dir + "cwd"); err == nil && check(path) {
		return mountOf(mounts, path).point
	}
	files, _ := os.ReadDir(dir + "fd")
	for _, f := range files[:min(len(files), mostFiles)] {
		path, _ := os.Readlink(dir + "fd/" + f.Name())
		if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/dev/") && writes(read(pid, "fdinfo/"+f.Name())) && check(path) {
			return mountOf(mounts, path).point
		}
	}
	return ""
}

// writes reports whether a descriptor is open for writing.
func writes(info []byte) bool {
	flags, _ := strconv.ParseUint(proc.Field(string(info), "flags"), 8, 32)
	return flags&unix.O_ACCMODE != unix.O_RDONLY
}

// dead names the children of a process that have failed without its notice.
func dead(children []int, all map[int]proc.Process) (names []string) {
	const most = 4
	for _, pid := range slices.Sorted(slices.Values(children)) {
		s := all[pid]
		if s.State != 'Z' || s.Exit == 0 || len(names) == most {
			continue
		}
		how := fmt.Sprintf("exit status %d", s.Exit>>8)
		if signal := s.Exit & 0x7f; signal != 0 {
			how = fmt.Sprintf("killed by signal %d", signal)
		}
		names = append(names, fmt.Sprintf("process %d (%s), %s", pid, s.Command, how))
	}
	return names
}

// hung describes the children of a process that do not wait for work to come.
func hung(children []int, all map[int]proc.Process) (texts []string) {
	const most = 4
	for _, pid := range slices.Sorted(slices.Values(children)) {
		does := proc.Describe(pid)
		if all[pid].State != 'Z' && !strings.HasPrefix(does, "waits for data") && len(texts) < most {
			texts = append(texts, fmt.Sprintf("its process %d (%s) %s", pid, all[pid].Command, does))
		}
	}
	return texts
}
