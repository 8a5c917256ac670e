package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gorun/topology/probe"
)

// patience bounds each of the host's own tools that are asked.
const patience = 5 * time.Second

// Gather reads what this host says of itself. What cannot be read is left out.
func Gather(ctx context.Context, version string) (Facts, error) {
	began := time.Now()
	host, err := probe.Probe(ctx, "/")
	if err != nil {
		return Facts{}, err
	}
	host.Name = host.Hostname
	f := Facts{Host: host, Version: version, Offloads: map[string]string{}}
	f.Kernel = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	f.Python = say(ctx, "python3", "--version")
	f.Sshd = ParseSshd(say(ctx, "/usr/sbin/sshd", "-T"))
	if len(f.Sshd) == 0 {
		f.Sshd = ParseSshd(read("/etc/ssh/sshd_config"))
	}
	var fs unix.Statfs_t
	if unix.Statfs("/dev/shm", &fs) == nil {
		f.ShmBytes = int64(fs.Blocks) * int64(fs.Bsize)
	}
	f.NoFile, f.NProc, f.MemLock = limit(unix.RLIMIT_NOFILE), limit(unix.RLIMIT_NPROC), limit(unix.RLIMIT_MEMLOCK)
	f.Balloon = ParseBalloon(read("/proc/meminfo"))
	f.Steal = ParseSteal(read("/proc/stat"))
	for _, n := range host.NICs {
		if n.Up && n.Name != "lo" {
			if off := ParseOffloads(say(ctx, "ethtool", "-k", n.Name)); off != "" {
				f.Offloads[n.Name] = off
			}
		}
	}
	if entries, _ := os.ReadDir("/proc/driver/nvidia/gpus"); len(entries) > 0 && len(host.GPUs) == 0 {
		f.GPUError = "the kernel has NVIDIA GPUs, but nvidia-smi does not answer"
	}
	f.RDMA = ports("/sys/class/infiniband")
	f.Clock = time.Now() // last: the launcher compares it with when the answer came
	f.Gathering = f.Clock.Sub(began)
	return f, nil
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
	b, _ := os.ReadFile(file) // not there, or not for us: ""
	return string(b)
}

// say runs one of the host's tools, "" if it is not there or fails.
func say(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
