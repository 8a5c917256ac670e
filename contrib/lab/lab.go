//go:build linux

package lab

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	home      = "/root"
	maxHosts  = 200
	bootLimit = 30 * time.Second // generous, for machines that are busy
	endLimit  = 10 * time.Second
)

// network is the lab's own: every lab has its own bridge in its own network namespace, so all use the same.
var network = netip.MustParsePrefix("10.77.0.0/24")

// launcherName is the host that has the keys of all others.
const launcherName = "launcher"

var (
	//go:embed rack.sh
	rackScript string
	//go:embed host.sh
	hostScript string
)

// Options configure a lab; the zero value is good.
type Options struct {
	// Share names directories that all hosts see at the same path, to read and write, like a network file
	// system. The directory of the Go module that the caller works in is always shared. Everything else of
	// the machine is read-only on the hosts, and /root, /home, /tmp, /var/tmp, /dev/shm and /run are empty.
	Share []string
	// Cgroups makes the machine's control groups of version 2 visible on all hosts, if it has them: they are the machine's
	// own, limits included.
	Cgroups bool
	// Class names a directory that all hosts share. What its directory NAME holds, host NAME sees in /sys/class, besides
	// what the kernel has there.
	Class string
}

// Lab is a set of hosts on one network: host1 to hostN, which have nothing but sshd and the machine's
// programs, and the launcher, which has an ssh configuration and the key for all of them.
type Lab struct {
	rack     *exec.Cmd // nil if another process owns the lab
	rackEnd  chan error
	stdin    *os.File // the lab lives as long as this pipe
	rackPID  int
	dir      string // the lab's files, seen from outside
	share    []string
	cgroups  string     // "yes" or ""
	class    string     // Options.Class
	hosts    []*LabHost // the launcher is the first
	identity key
}

// New makes a lab with hosts named host1, host2 and so on, and waits until all answer to ssh. The caller
// must Close it. ctx limits the start only.
func New(ctx context.Context, hosts int, options Options) (*Lab, error) {
	if hosts < 1 || hosts > maxHosts {
		return nil, fmt.Errorf("make lab: %d hosts, want 1 to %d", hosts, maxHosts)
	}
	if signal.Ignored(syscall.SIGHUP) { // by nohup: what a host runs would ignore it too, and a signal that is caught starts as usual
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	l := &Lab{rackEnd: make(chan error, 1)}
	if err := l.build(ctx, hosts, options); err != nil {
		return nil, errors.Join(fmt.Errorf("make lab: %w", err), l.Close())
	}
	return l, nil
}

func (l *Lab) build(ctx context.Context, hosts int, options Options) error {
	var err error
	if l.share, err = sharedDirs(options.Share); err != nil {
		return err
	}
	l.class = options.Class
	if options.Cgroups {
		l.cgroups = "yes"
	}
	if l.identity, err = newKey(); err != nil {
		return err
	}
	if err := l.startRack(ctx); err != nil {
		return err
	}
	address := network.Addr()
	for i := range hosts + 1 {
		h := &LabHost{lab: l, name: fmt.Sprintf("host%d", i), port: fmt.Sprintf("port%d", i), card: fmt.Sprintf("02:00:0a:4d:00:%02x", i)}
		if i == 0 {
			h.name, h.address = launcherName, netip.MustParseAddr("10.77.0.254")
		} else {
			address = address.Next()
			h.address = address
		}
		if h.key, err = newKey(); err != nil {
			return err
		}
		l.hosts = append(l.hosts, h)
	}
	if err := l.writeHostsFile(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range l.hosts {
		group.Go(func() error { return h.Boot(ctx) })
	}
	return group.Wait()
}

// labDir is the directory of a lab's files, in the mount namespace of its rack.
func labDir(rackPID int) string { return fmt.Sprintf("/proc/%d/root/run/lab", rackPID) }

// startRack starts the process that holds everything, and lays the bridge.
func (l *Lab) startRack(ctx context.Context) error {
	stdin, hold, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start rack: %w", err)
	}
	defer stdin.Close()
	l.stdin = hold
	ready, told, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start rack: %w", err)
	}
	defer ready.Close()
	defer told.Close()
	l.rack = exec.Command("/bin/sh", append([]string{"-c", rackScript, "gorun-lab"}, l.share...)...)
	l.rack.Args[0] = "gorun-lab" // shown by ps
	l.rack.Env = []string{"PATH=" + searchPath}
	var stderr bytes.Buffer
	l.rack.Stdin, l.rack.Stdout, l.rack.Stderr = stdin, told, &stderr
	l.rack.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC, Setsid: true}
	if err := l.rack.Start(); err != nil {
		l.rack = nil
		return fmt.Errorf("start rack: %w", err)
	}
	go func() { l.rackEnd <- l.rack.Wait() }()
	l.rackPID = l.rack.Process.Pid
	l.dir = labDir(l.rackPID)

	told.Close()
	if deadline, ok := ctx.Deadline(); ok {
		ready.SetReadDeadline(deadline)
	}
	if _, err := ready.Read(make([]byte, 16)); err != nil {
		l.stdin.Close()
		return fmt.Errorf("start rack: %w: %s", errors.Join(err, l.waitRack()), strings.TrimSpace(stderr.String()))
	}
	return l.ip(l.rackPID, "link add lab0 type bridge forward_delay 0", "link set lab0 up")
}

// waitRack waits for the end of the rack, which ends when all processes of the lab have.
func (l *Lab) waitRack() error {
	select {
	case err := <-l.rackEnd:
		l.rackEnd <- err // for the next receiver
		return err
	case <-time.After(endLimit):
		return fmt.Errorf("the lab's first process %d is still there; a command on a host that nobody waits for keeps it", l.rackPID)
	}
}

// Close ends every process of the lab and waits until they are gone. It may be called more than once.
func (l *Lab) Close() error {
	if l.rack == nil {
		return nil
	}
	l.stdin.Close()
	// The rack would end by the closed pipe alone, but not if it hangs in a mount.
	l.rack.Process.Kill()
	err := l.waitRack()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = nil // killed, as intended
	}
	for _, h := range l.hosts {
		h.wait()
	}
	return err
}

// Hosts are host1 to hostN.
func (l *Lab) Hosts() []*LabHost { return l.hosts[1:] }

// Launcher returns the host to run gorun or ssh from: its home has a key for every host and knows their host keys.
func (l *Lab) Launcher() *LabHost { return l.hosts[0] }

// Host finds a host by its number, from 1, as in its name.
func (l *Lab) Host(number int) *LabHost { return l.hosts[number] }

// writeHostsFile writes the addresses of all hosts to the file that all of them share.
func (l *Lab) writeHostsFile() error {
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")
	for _, h := range l.hosts {
		fmt.Fprintf(&text, "%s %s\n", h.address, h.name)
	}
	// In place, because the hosts have this very file mounted.
	if err := os.WriteFile(filepath.Join(l.dir, "hosts"), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write hosts file: %w", err)
	}
	return nil
}

// sharedDirs returns the directories that all hosts see: the requested ones, and the Go module around the working
// directory.
func sharedDirs(asked []string) ([]string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("share directories: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			asked = append([]string{dir}, asked...)
			break
		}
		if dir == "/" {
			break
		}
	}
	var share []string
	for _, dir := range asked {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("share %s: %w", dir, err)
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("share %s: not a directory", dir)
		}
		if dir == "/" || dir == "/run" || strings.HasPrefix(dir, "/run/") {
			return nil, fmt.Errorf("share %s: a host needs its own", dir)
		}
		share = append(share, dir)
	}
	slices.Sort(share) // parents first
	return slices.Compact(share), nil
}
