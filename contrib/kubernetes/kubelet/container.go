//go:build linux

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sys/unix"
)

//go:embed container.sh
var containerScript string

// hidden are directories of this machine that are not a part of images, with their modes.
var hidden = map[string]os.FileMode{"/root": 0o700, "/home": 0o755, "/tmp": 0o777 | os.ModeSticky, "/var/tmp": 0o777 | os.ModeSticky, "/run": 0o755}

// container is one of a pod.
type container struct {
	pod    *pod
	object *core.Container

	// Guarded by the pod's lock.
	state, last core.ContainerState
	restarts    int32
	ready       bool
	pid         int // of the first process, as this machine numbers it; 0 if it does not run
}

// process is one run of a container.
type process struct {
	first   int // of the container's pid namespace
	started time.Time
	exited  chan struct{}
	code    int // once exited is closed
}

// privileges returns the options of setpriv(1) for what a container may do.
func privileges(pod *core.Pod, object *core.Container) []string {
	var user, group *int64
	var groups []string
	if s := pod.Spec.SecurityContext; s != nil {
		user, group = s.RunAsUser, s.RunAsGroup
		for _, g := range s.SupplementalGroups {
			groups = append(groups, strconv.FormatInt(g, 10))
		}
		if s.FSGroup != nil {
			groups = append(groups, strconv.FormatInt(*s.FSGroup, 10))
		}
	}
	options := []string{"setpriv"}
	if s := object.SecurityContext; s != nil {
		if s.RunAsUser != nil {
			user = s.RunAsUser
		}
		if s.RunAsGroup != nil {
			group = s.RunAsGroup
		}
		if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
			options = append(options, "--no-new-privs")
		}
		if s.Capabilities != nil && slices.Contains(s.Capabilities.Drop, "ALL") {
			options = append(options, "--bounding-set=-all", "--inh-caps=-all")
		}
	}
	id := func(n *int64) string {
		if n == nil {
			return "0"
		}
		return strconv.FormatInt(*n, 10)
	}
	if len(groups) == 0 {
		groups = []string{id(group)}
	}
	return append(options, "--reuid="+id(user), "--regid="+id(group), "--groups="+strings.Join(groups, ","), "--")
}

// asRoot reports whether a container that may not run as root would.
func asRoot(pod *core.Pod, object *core.Container) bool {
	p, c := pod.Spec.SecurityContext, object.SecurityContext
	not := p != nil && p.RunAsNonRoot != nil && *p.RunAsNonRoot
	if c != nil && c.RunAsNonRoot != nil {
		not = *c.RunAsNonRoot
	}
	return not && slices.Contains(privileges(pod, object), "--reuid=0")
}

// mounts writes the container's directory with the list of its mounts.
func (c *container) mounts(own string, readOnly bool, groups []cgroup) error {
	access := map[bool]string{true: "ro", false: "rw"}
	volumes := map[string]bool{}
	var lines []string
	dir := "/run/kubelet/pods/" + string(c.pod.object.UID)
	for _, m := range c.object.VolumeMounts {
		volumes[filepath.Clean(m.MountPath)] = true
		lines = append(lines, fmt.Sprintf("%s %s %s", filepath.Join(dir, "volumes", m.Name, m.SubPath), filepath.Clean(m.MountPath), access[m.ReadOnly]))
	}
	for path, mode := range hidden {
		if volumes[path] {
			continue
		}
		outside := filepath.Join(own, "hidden", path)
		if err := os.MkdirAll(outside, 0o755); err != nil {
			return err
		}
		if path == "/run" { // as sshd wants it
			if err := os.MkdirAll(filepath.Join(outside, "sshd"), 0o755); err != nil {
				return err
			}
		}
		if err := os.Chmod(outside, mode); err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", filepath.Join(dir, c.object.Name, "hidden", path), path, access[readOnly]))
	}
	for _, g := range groups {
		lines = append(lines, g.dir+" "+g.inside+" ro")
	}
	slices.SortFunc(lines, func(a, b string) int { // parents first
		return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1])
	})
	return os.WriteFile(filepath.Join(own, "mounts"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// cgroups returns the control groups that limit the container.
func (c *container) cgroups() []cgroup {
	if c.pod.kubelet.unlimited {
		return nil
	}
	return cgroupsOf(fmt.Sprintf("%s%d-", cgroupPrefix, os.Getpid())+string(c.pod.object.UID)+"-"+c.object.Name, c.object.Resources.Limits, isUnified())
}

// start starts the container's command.
func (c *container) start(ctx context.Context) (*process, error) {
	p := c.pod
	variables, err := p.kubelet.environment(ctx, p.current(), c.object)
	if err != nil {
		return nil, &configError{err}
	}
	if asRoot(p.object, c.object) {
		return nil, &configError{errors.New("container has runAsNonRoot and image will run as root")}
	}
	own := p.kubelet.node.file("pods", string(p.object.UID), c.object.Name)
	if err := os.RemoveAll(own); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, err
	}
	readOnly := c.object.SecurityContext != nil && c.object.SecurityContext.ReadOnlyRootFilesystem != nil && *c.object.SecurityContext.ReadOnlyRootFilesystem
	groups, running := c.cgroups(), false
	defer func() {
		for _, g := range groups {
			if !running { // otherwise its end removes them
				g.remove()
			}
		}
	}()
	for _, g := range groups {
		if err := g.make(); err != nil {
			return nil, err
		}
	}
	if err := c.mounts(own, readOnly, groups); err != nil {
		return nil, err
	}
	dir := c.object.WorkingDir
	if dir == "" {
		dir = "/"
	}
	mode := map[bool]string{true: "ro", false: "rw"}[readOnly]
	inside := "/run/kubelet/pods/" + string(p.object.UID)
	args := []string{"--pid", "--fork", "--kill-child", "--mount", "--", "/bin/sh", "-c", containerScript, "container",
		p.kubelet.node.imageDir[c.object.Image], filepath.Join(inside, c.object.Name), inside, mode, dir}
	args = append(args, privileges(p.object, c.object)...)
	for _, word := range append(slices.Clone(c.object.Command), c.object.Args...) {
		args = append(args, expand(word, variables))
	}
	cmd := exec.Command("unshare", args...)
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	output, err := newRecord(p.kubelet.logFile(p.object.Namespace, p.object.Name, c.object.Name))
	if err != nil {
		return nil, err
	}
	stdin, hold, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, output.Close())
	}
	defer stdin.Close()
	defer hold.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	node := p.kubelet.node.pid
	if err := enter([]namespace{{"pid", node}, {"net", p.sandbox}, {"uts", p.sandbox}, {"ipc", p.sandbox}, {"mnt", node}}, cmd.Start); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	r := &process{started: time.Now(), exited: make(chan struct{})}
	if r.first, err = onlyChild(cmd.Process.Pid); err == nil {
		for _, g := range groups {
			err = errors.Join(err, g.add(r.first))
		}
	}
	if err == nil {
		_, err = hold.WriteString("go\n")
	}
	running = true
	go func() {
		cmd.Wait() // until all of its output is read
		output.Close()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		r.code = status.ExitStatus()
		if status.Signaled() {
			r.code = 128 + int(status.Signal())
		}
		for _, g := range groups {
			g.remove()
		}
		close(r.exited)
	}()
	if err != nil {
		cmd.Process.Kill()
		<-r.exited
		return nil, err
	}
	return r, nil
}

// onlyChild waits for a process to have a child.
func onlyChild(parent int) (int, error) {
	for range 2000 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		if err != nil {
			return 0, err
		}
		if pids := strings.Fields(string(text)); len(pids) > 0 {
			return strconv.Atoi(pids[0])
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0, errors.New("a process has not started another")
}

// exec runs a command in a container, as kubectl exec does.
func (c *container) exec(ctx context.Context, first int, command []string) error {
	args := append([]string{"-t", strconv.Itoa(first), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--"}, privileges(c.pod.object, c.object)...)
	cmd := exec.CommandContext(ctx, "nsenter", append(args, command...)...)
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", first))
	if err != nil {
		return err
	}
	cmd.Env = strings.Split(strings.TrimSuffix(string(environment), "\x00"), "\x00")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %.500s", err, out)
	}
	return nil
}

// configError is why a container cannot be made.
type configError struct{ error }

// keep runs the container as often as its pod's policy wants, and returns the last exit code. It returns when the pod ends,
// or ctx does.
func (c *container) keep(ctx context.Context, policy core.RestartPolicy) int {
	p := c.pod
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		r, err := c.start(ctx)
		var wrong *configError
		switch {
		case errors.As(err, &wrong):
			c.waits("CreateContainerConfigError", err.Error())
		case err != nil:
			c.waits("RunContainerError", err.Error())
		default:
			code := c.run(ctx, r)
			select {
			case <-p.leave:
				return code
			default:
			}
			if policy == core.RestartPolicyNever || policy == core.RestartPolicyOnFailure && code == 0 {
				return code
			}
			p.mu.Lock()
			c.last, c.restarts = c.state, c.restarts+1
			p.mu.Unlock()
			if wait > time.Second { // the first restart comes at once
				c.waits("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container", wait))
			} else {
				continue
			}
		}
		select {
		case <-p.leave:
			return 137
		case <-ctx.Done():
			return 137
		case <-time.After(wait):
		}
	}
}

func (c *container) waits(reason, message string) {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	c.state = core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason, Message: message}}
}

// run waits for the end of one run of a container, probes it meanwhile, and ends it with its pod.
func (c *container) run(ctx context.Context, r *process) int {
	p := c.pod
	id := fmt.Sprintf("lab://%d", r.first)
	p.mu.Lock()
	c.pid = r.first
	c.state = core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: meta.NewTime(r.started)}}
	p.mu.Unlock()
	probing, stop := context.WithCancel(ctx)
	unhealthy := make(chan struct{})
	probes := make(chan struct{})
	go func() { defer close(probes); c.probe(probing, r.first, unhealthy) }()
	select {
	case <-r.exited:
	case <-p.leave:
		c.terminate(ctx, r, p.grace())
	case <-unhealthy:
		c.terminate(ctx, r, time.Duration(*p.object.Spec.TerminationGracePeriodSeconds)*time.Second)
	}
	<-r.exited
	stop()
	<-probes
	reason := "Completed"
	if r.code != 0 {
		reason = "Error"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.pid, c.ready = 0, false
	c.state = core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: int32(r.code), Reason: reason,
		StartedAt: meta.NewTime(r.started), FinishedAt: meta.Now(), ContainerID: id}}
	return r.code
}

// terminate runs the preStop hook and sends TERM, and KILL once the grace period is over or the pod is deleted by force.
func (c *container) terminate(ctx context.Context, r *process, grace time.Duration) {
	end, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	go func() {
		select {
		case <-c.pod.force:
			cancel()
		case <-end.Done():
		}
	}()
	if l := c.object.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Exec != nil {
		c.exec(end, r.first, l.PreStop.Exec.Command) // a hook that fails changes nothing
	}
	r.signal(unix.SIGTERM)
	select {
	case <-r.exited:
	case <-end.Done():
		r.signal(unix.SIGKILL)
	}
}

// signal sends a signal, unless the process has ended: its number may belong to another one by then.
func (r *process) signal(s unix.Signal) {
	select {
	case <-r.exited:
	default:
		unix.Kill(r.first, s)
	}
}
