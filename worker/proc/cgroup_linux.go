package proc

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is a control group (version 2) for the ranks of one job on this host. A process cannot leave it by itself, so
// it also shows whose the processes are when both supervisor and daemon were killed at the same instant. A nil Cgroup
// means that there is none: many users may not create one.
//
// Supervisor and daemon share one lock on its directory. The kernel drops it with the last of them: a group that can be
// locked belongs to a dead job, and the next supervisor ends what is in it.
type Cgroup struct {
	dir  *os.File
	path string
}

// cgroupFD is the descriptor of a supervised daemon's control group, if there is one.
const cgroupFD = LifelineFD + 1

// minCgroupAge is how old a group must be before a supervisor checks whether it has an owner: many groups may start at
// once, and their supervisors should not check each other.
const minCgroupAge = time.Minute

// cgroupName is the prefix, the creation time in seconds and a random number, in hex. Other groups may have names that
// begin alike: systemd names the group of a unit after the unit.
var cgroupName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^gorun-job-([0-9a-f]{8})-[0-9a-f]{16}$`)
})

func newCgroupName(now time.Time) string {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return fmt.Sprintf("gorun-job-%08x-%x", uint32(now.Unix()), id)
}

// newCgroup creates a control group below the one of this process, so that its limits apply.
func newCgroup() (*Cgroup, error) {
	own, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(own, newCgroupName(time.Now()))
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	c, err := lockCgroup(path)
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	return c, nil
}

// lockCgroup fails if the group is locked.
func lockCgroup(path string) (*Cgroup, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open control group: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock control group: %w", err)
	}
	return &Cgroup{dir: dir, path: path}, nil
}

// InheritCgroup returns the control group that the supervisor created for this daemon's ranks, nil if there is none.
func InheritCgroup() *Cgroup {
	var st unix.Statfs_t
	if err := unix.Fstatfs(cgroupFD, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	unix.CloseOnExec(cgroupFD) // or ranks would hold the lock
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(cgroupFD))
	if err != nil {
		return nil
	}
	return &Cgroup{dir: os.NewFile(cgroupFD, path), path: path}
}

// end kills everything in the group, even processes that fork meanwhile, and removes it.
func (c *Cgroup) end(deadline time.Time) error {
	if c == nil {
		return nil
	}
	pause := firstScan
	for {
		if err := c.kill(); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("end control group %s: %w", c.path, err)
		}
		err := removeCgroup(c.path)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("end control group %s: %w", c.path, cmp.Or[error](c.stuck(), err))
		}
		time.Sleep(pause)
		pause = min(2*pause, slowScan)
	}
}

// leave keeps an empty group for another job of this daemon, and ends any other. After a kill by cgroup.kill, Linux
// 6.18 kills whatever a process outside the group starts in it.
func (c *Cgroup) leave(deadline time.Time) error {
	if c == nil {
		return nil
	}
	members, err := os.ReadFile(filepath.Join(c.path, "cgroup.procs"))
	below, bad := os.ReadDir(c.path)
	if err == nil && bad == nil && len(members) == 0 && !slices.ContainsFunc(below, os.DirEntry.IsDir) {
		return nil
	}
	return c.end(deadline)
}

// Ended reports whether a job has ended the group.
func (c *Cgroup) Ended() bool {
	if c == nil {
		return false
	}
	var st unix.Stat_t
	return unix.Stat(c.path, &st) != nil
}

func (c *Cgroup) kill() error {
	err := os.WriteFile(filepath.Join(c.path, "cgroup.kill"), []byte("1"), 0)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, pid := range c.members() { // a kernel before 5.14
		unix.Kill(pid, unix.SIGKILL)
	}
	return nil
}

func (c *Cgroup) members() (pids []int) {
	text, _ := os.ReadFile(filepath.Join(c.path, "cgroup.procs"))
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 { // 0 is a process of another namespace
			pids = append(pids, pid)
		}
	}
	return pids
}

func (c *Cgroup) stuck() error {
	if pids := c.members(); len(pids) > 0 {
		return &StuckError{pids}
	}
	return nil
}

func (c *Cgroup) close() {
	if c != nil {
		c.dir.Close()
	}
}

// removeCgroup removes a group and the groups that its programs created in it.
func removeCgroup(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return unix.Rmdir(path)
}

// sweepCgroups ends groups of at least an age that have no owner: those beside ours, and those from other logins, which
// systemd puts beside ours.
func sweepCgroups(age time.Duration, deadline time.Time) error {
	own, err := ownCgroup()
	if err != nil {
		return nil // then there are none either
	}
	places := []string{own}
	if top := filepath.Dir(own); strings.HasSuffix(top, ".slice") {
		places, _ = filepath.Glob(filepath.Join(top, "*"))
	}
	before := uint64(time.Now().Add(-age).Unix())
	var errs []error
	for _, place := range places {
		entries, _ := os.ReadDir(place) // most are gone, or files
		for _, e := range entries {
			name := cgroupName().FindStringSubmatch(e.Name())
			if name == nil {
				continue
			}
			if made, _ := strconv.ParseUint(name[1], 16, 32); made > before {
				continue
			}
			if c, err := lockCgroup(filepath.Join(place, e.Name())); err == nil {
				errs = append(errs, c.end(deadline))
				c.close()
			}
		}
	}
	return errors.Join(errs...)
}

// ownCgroup returns the directory of this process's group.
func ownCgroup() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find control group: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find control group: %w", err)
	}
	for _, dir := range findCgroup(string(groups), string(mounts)) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir, nil
		}
	}
	return "", errors.New("find control group: there is none of version 2")
}

// findCgroup combines the group's path in its hierarchy with the places where the hierarchy, or a part of it, is
// mounted: the newest mount first, as it may hide others.
func findCgroup(groups, mounts string) (dirs []string) {
	for line := range strings.Lines(groups) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ok || group == ".." || strings.HasPrefix(group, "../") {
			continue // not version 2, or outside of our namespace
		}
		for mount := range strings.Lines(mounts) {
			// id parent device root place options optional… - type source options
			place, system, _ := strings.Cut(mount, " - ")
			fields := strings.Fields(place)
			if len(fields) < 5 || !strings.HasPrefix(system, "cgroup2 ") {
				continue
			}
			below, err := filepath.Rel(fields[3], "/"+group)
			if err == nil && below != ".." && !strings.HasPrefix(below, "../") {
				dirs = append(dirs, filepath.Join(fields[4], below))
			}
		}
	}
	slices.Reverse(dirs)
	return dirs
}
