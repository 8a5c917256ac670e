//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
)

// cgroupRoot is where this machine has its control groups.
const cgroupRoot = "/sys/fs/cgroup"

// cgroupPrefix begins the names of the groups of this program; the number of a kubelet's process follows.
const cgroupPrefix = "gorun-kubelet-"

// A cgroup is one control group of a container, with the path at which the container finds it.
type cgroup struct {
	dir, inside string
	limits      map[string]string // by file
}

// cgroupsOf returns the control groups of a container with limits: one in each hierarchy of version 1, or one for all
// in version 2. A limit that is not set is left out.
func cgroupsOf(name string, limits core.ResourceList, unified bool) []cgroup {
	cpu, memory := limits.Cpu().MilliValue()*100, limits.Memory().Value() // microseconds of each 100 ms, bytes
	one := cgroup{filepath.Join(cgroupRoot, name), cgroupRoot, map[string]string{}}
	var all []cgroup
	if cpu > 0 {
		one.limits["cpu.max"] = fmt.Sprintf("%d 100000", cpu)
		all = append(all, cgroup{filepath.Join(cgroupRoot, "cpu", name), cgroupRoot + "/cpu",
			map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": strconv.FormatInt(cpu, 10)}})
	}
	if memory > 0 {
		one.limits["memory.max"] = strconv.FormatInt(memory, 10)
		all = append(all, cgroup{filepath.Join(cgroupRoot, "memory", name), cgroupRoot + "/memory",
			map[string]string{"memory.limit_in_bytes": strconv.FormatInt(memory, 10)}})
	}
	if unified && len(all) > 0 {
		return []cgroup{one}
	}
	return all
}

// isUnified reports whether this machine has control groups of version 2 alone.
func isUnified() bool {
	_, err := os.Stat(cgroupRoot + "/cgroup.controllers")
	return err == nil
}

// enableLimits lets groups of version 2 limit CPUs and memory. That fails in a container that has processes in its
// topmost group.
func enableLimits() error {
	if !isUnified() {
		return nil
	}
	return os.WriteFile(cgroupRoot+"/cgroup.subtree_control", []byte("+cpu +memory"), 0o600)
}

// make makes the group, with its limits.
func (g cgroup) make() error {
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for file, value := range g.limits {
		if err := os.WriteFile(filepath.Join(g.dir, file), []byte(value), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// add moves a process into the group; its children are there too.
func (g cgroup) add(pid int) error {
	return os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600)
}

// remove removes the group, once its last process has ended.
func (g cgroup) remove() {
	for range 100 {
		if err := os.Remove(g.dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// removeStaleCgroups removes the groups of kubelets that were killed. A group with processes stays.
func removeStaleCgroups() {
	for _, pattern := range []string{"/" + cgroupPrefix + "*", "/*/" + cgroupPrefix + "*"} {
		dirs, _ := filepath.Glob(cgroupRoot + pattern)
		for _, dir := range dirs {
			pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), "-")
			if _, err := os.Stat("/proc/" + pid); errors.Is(err, os.ErrNotExist) {
				os.Remove(dir)
			}
		}
	}
}
