package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gorun/topology/probe"
)

// toolTimeout bounds each tool of the host that is run.
const toolTimeout = 5 * time.Second

// gpuTimeout bounds the calls of nvidia-smi, which takes seconds for every GPU that the driver has to wake.
const gpuTimeout = 20 * time.Second

// askBinding has a module of the binding in a binary look at what python3 has, and reports whether it can.
func askBinding(ctx context.Context, binary, module string, answer any) bool {
	script := fmt.Sprintf("import sys; sys.path.insert(0, sys.argv[1]); import %[1]s; %[1]s.main()", module)
	return json.Unmarshal([]byte(runTool(ctx, "python3", "-c", script, binary)), answer) == nil
}

// Python returns what the python3 of this host can load of gorun, NativeLoads and from where, or why not, and its frameworks; "" for both
// if it cannot import the binding in that binary.
func Python(ctx context.Context, binary string) (native, frameworks string) {
	var answer struct{ Native, Origin, Frameworks string }
	if !askBinding(ctx, binary, "gorun.frameworks", &answer) {
		return "", ""
	}
	return cmp.Or(answer.Native, NativeLoads+" "+answer.Origin), answer.Frameworks
}

// Gather reads this host's facts. What cannot be read is left out.
func Gather(ctx context.Context, version string) (Facts, error) {
	began := time.Now()
	host, err := probe.Probe(ctx, "/")
	if err != nil {
		return Facts{}, err
	}
	host.Name = host.Hostname
	f := Facts{Host: host, Version: version, Offloads: map[string]string{}}
	f.Kernel = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	f.Python = runTool(ctx, "python3", "--version")
	if self, err := os.Executable(); err == nil && f.Python != "" {
		f.Native, f.Frameworks = Python(ctx, self)
		if len(host.GPUs) > 0 {
			if found := (GPULibraries{}); askBinding(ctx, self, "gorun.gpu.path", &found) {
				f.GPULibraries = &found
			}
		}
	}
	f.Resolved = resolve(ctx, host.Hostname)
	f.Sshd = ParseSshd(runTool(ctx, "/usr/sbin/sshd", "-T"))
	if len(f.Sshd) == 0 {
		f.Sshd = ParseSshd(read("/etc/ssh/sshd_config"))
	}
	f.Room = rooms()
	f.Quota = probe.Quota("/", "self")
	f.Ports = strings.Join(strings.Fields(read("/proc/sys/net/ipv4/ip_local_port_range")), "-")
	f.NoFile, f.NProc, f.MemLock = limit(unix.RLIMIT_NOFILE), limit(unix.RLIMIT_NPROC), limit(unix.RLIMIT_MEMLOCK)
	if locksFreely(read("/proc/self/status")) {
		f.MemLock = math.MaxUint64
	}
	f.Balloon = ParseBalloon(read("/proc/meminfo"))
	f.Steal = ParseSteal(read("/proc/stat"))
	for _, n := range host.NICs {
		if n.Up && n.Name != "lo" {
			if off := ParseOffloads(runTool(ctx, "ethtool", "-k", n.Name)); off != "" {
				f.Offloads[n.Name] = off
			}
		}
	}
	if len(host.GPUs) > 0 {
		f.GPUStates, f.GPUPeers, f.GPUError = askNvidia(ctx)
	} else if entries, _ := os.ReadDir("/proc/driver/nvidia/gpus"); len(entries) > 0 {
		f.GPUError = nvidiaSilent
	}
	f.RDMA = ports("/sys/class/infiniband")
	for i := range f.RDMA {
		p := &f.RDMA[i]
		for _, d := range host.RDMA {
			if d.Name == p.Device && d.NIC != "" {
				p.PFC = ParsePFC(runTool(ctx, "dcb", "pfc", "show", "dev", d.NIC))
				p.ECN = ecn(filepath.Join("/sys/class/net", d.NIC, "ecn/roce_rp/enable"))
			}
		}
	}
	f.Ibverbs = ibverbs()
	f.Verbs = closedVerbs("/dev/infiniband")
	f.Clock = time.Now() // last: the launcher compares it with the arrival of the answer
	f.Gathering = f.Clock.Sub(began)
	return f, nil
}

// resolve returns the addresses of a name, none where it is unknown. Gloo asks glibc, which knows more than files and DNS have,
// such as the host's own name by nss-myhostname; this program's resolver may be Go's.
func resolve(ctx context.Context, name string) (addrs []string) {
	lookup, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	if addrs, _ = net.DefaultResolver.LookupHost(lookup, name); len(addrs) > 0 {
		return addrs
	}
	for line := range strings.Lines(runTool(ctx, "getent", "ahosts", name)) {
		if addr, _, _ := strings.Cut(line, " "); !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// rooms returns what there is for files.
func rooms() []Room {
	cache, _ := os.UserCacheDir()
	home, _ := os.UserHomeDir() // where the cache will be
	all := []Room{roomIn("/tmp"), roomIn(cache, home), roomIn("/dev/shm")}
	return slices.DeleteFunc(all, func(r Room) bool { return r.Dir == cache && r.Size == 0 }) // without a home, gorun uses /tmp
}

// roomIn returns what a directory has, or will have in the first of those above it that is there: nothing if none is.
func roomIn(dir string, above ...string) Room {
	var fs unix.Statfs_t
	for _, at := range append([]string{dir}, above...) {
		if unix.Statfs(at, &fs) == nil {
			break
		}
	}
	return roomOf(dir, fs)
}

// roomOf is what a file system has for a directory. Blocks count in fragments, which FUSE tells apart. Without inodes nothing is free.
func roomOf(dir string, fs unix.Statfs_t) Room {
	unit := cmp.Or(int64(fs.Frsize), int64(fs.Bsize))
	r := Room{Dir: dir, Size: int64(fs.Blocks) * unit}
	if fs.Files == 0 || fs.Ffree > 0 {
		r.Free = int64(fs.Bavail) * unit
	}
	return r
}

// nvidiaSilent is the finding about GPUs whose driver is stuck, or has no tools.
const nvidiaSilent = "the kernel has NVIDIA GPUs, but nvidia-smi does not answer"

// askNvidia returns what nvidia-smi reports of this host's GPUs, or why it reports nothing. A host may lack it.
func askNvidia(ctx context.Context) (states []GPUState, peers Peers, silent string) {
	ctx, cancel := context.WithTimeout(ctx, gpuTimeout)
	defer cancel()
	report := runWithin(ctx, gpuTimeout, "nvidia-smi", "-q")
	if report == "" {
		if _, err := exec.LookPath("nvidia-smi"); err == nil {
			silent = nvidiaSilent
		}
		return nil, Peers{}, silent
	}
	return ParseGPUStates(report), ParsePeers(runWithin(ctx, gpuTimeout, "nvidia-smi", "topo", "-p2p", "r")), ""
}

// closedVerbs returns why the devices of a directory cannot be used.
func closedVerbs(dir string) string {
	devices, _ := filepath.Glob(filepath.Join(dir, "uverbs*")) // the pattern is well-formed
	if len(devices) == 0 {
		return "no " + dir + "/uverbs*"
	}
	for _, device := range devices {
		if err := unix.Access(device, unix.R_OK|unix.W_OK); err != nil {
			return fmt.Sprintf("%s: %v", device, err)
		}
	}
	return ""
}

// ecn returns the priorities for which a NIC of mlx5 slows down when the network is full, "" if it has no such settings.
func ecn(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is well-formed
	var on []string
	for _, file := range files {
		if strings.TrimSpace(read(file)) == "1" {
			on = append(on, filepath.Base(file))
		}
	}
	if len(files) == 0 {
		return ""
	}
	return cmp.Or(strings.Join(on, " "), "off")
}

// ibverbs returns the version in the name of the library's file, "" if there is none.
func ibverbs() string {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for _, dir := range []string{"/usr/lib/" + machine + "-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib"} {
		if file, err := filepath.EvalSymlinks(filepath.Join(dir, "libibverbs.so.1")); err == nil {
			return strings.TrimPrefix(filepath.Base(file), "libibverbs.so.")
		}
	}
	return ""
}

func ports(root string) []Port {
	var out []Port
	states, _ := filepath.Glob(filepath.Join(root, "*", "ports", "*", "state")) // the pattern is well-formed
	for _, file := range states {
		_, state, _ := strings.Cut(strings.TrimSpace(read(file)), ": ")
		port := filepath.Dir(file)
		out = append(out, Port{Device: filepath.Base(filepath.Dir(filepath.Dir(port))), Number: filepath.Base(port), State: state})
	}
	return out
}

func limit(resource int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return 0
	}
	return l.Max
}

func read(file string) string {
	b, _ := os.ReadFile(file) // "" if missing or not readable
	return string(b)
}

// runTool returns the output of one of the host's tools, "" if it is missing or fails.
func runTool(ctx context.Context, name string, args ...string) string {
	return runWithin(ctx, toolTimeout, name, args...)
}

func runWithin(ctx context.Context, limit time.Duration, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// locksFreely reports whether a process with this /proc/PID/status has CAP_IPC_LOCK, as root does outside of most
// containers: the limit of locked memory does not hold for it.
func locksFreely(status string) bool {
	_, rest, _ := strings.Cut(status, "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && set&(1<<unix.CAP_IPC_LOCK) != 0
}
