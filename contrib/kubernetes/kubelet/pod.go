//go:build linux

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed sandbox.sh
var sandboxScript string

// pod is one on this node. A goroutine starts it and waits for its end; the kubelet's loop reports its status.
type pod struct {
	kubelet *kubelet
	object  *core.Pod // as it was when this node got it
	path    string    // of the object
	leave   chan struct{}
	force   chan struct{} // closed when the pod shall end at once
	done    chan struct{} // closed when its goroutine has ended, and nothing of the pod runs any more

	address netip.Addr
	sandbox int // the first process

	mu         sync.Mutex
	deadline   time.Time // of the grace period
	init, main []*container
	phase      core.PodPhase
	initiated  bool // all init containers have ended well
	started    meta.Time
	reported   []byte // the status that the API server has
	deleted    bool
}

// newPod starts a pod; it returns nil for one that has ended before this kubelet knew it.
func (k *kubelet) newPod(ctx context.Context, object *core.Pod) *pod {
	if object.Status.Phase == core.PodSucceeded || object.Status.Phase == core.PodFailed {
		return nil
	}
	p := &pod{kubelet: k, object: object, path: "/api/v1/namespaces/" + object.Namespace + "/pods/" + object.Name,
		leave: make(chan struct{}), force: make(chan struct{}), done: make(chan struct{}), phase: core.PodPending, started: meta.Now()}
	for _, list := range []struct {
		objects []core.Container
		into    *[]*container
	}{{object.Spec.InitContainers, &p.init}, {object.Spec.Containers, &p.main}} {
		for i := range list.objects {
			*list.into = append(*list.into, &container{pod: p, object: &list.objects[i],
				state: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ContainerCreating"}}})
		}
	}
	go func() {
		defer close(p.done)
		if err := p.run(ctx); err != nil && ctx.Err() == nil {
			log.Printf("run %s: %v", object.Name, err)
		}
	}()
	return p
}

// end begins the end of the pod, or shortens its grace period. The kubelet's loop alone calls it.
func (p *pod) end(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deadline.IsZero() {
		p.deadline = time.Now().Add(grace)
		close(p.leave)
	}
	if grace == 0 {
		select {
		case <-p.force:
		default:
			close(p.force)
		}
	}
}

// grace returns the rest of the grace period.
func (p *pod) grace() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.deadline)
}

func (p *pod) gone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// current returns the pod with its addresses.
func (p *pod) current() *core.Pod {
	c := p.object.DeepCopy()
	c.Status.PodIP, c.Status.HostIP = p.address.String(), "127.0.0.1"
	return c
}

// run runs the containers of the pod until it ends.
func (p *pod) run(ctx context.Context) error {
	end := func(phase core.PodPhase) {
		p.mu.Lock()
		p.phase = phase
		p.mu.Unlock()
	}
	defer func() { // whatever ended it
		p.mu.Lock()
		if p.phase == core.PodPending || p.phase == core.PodRunning {
			p.phase = core.PodFailed
		}
		p.mu.Unlock()
	}()
	if !p.prepared(ctx) {
		return nil
	}
	stop, err := p.startSandbox()
	if err != nil {
		return fmt.Errorf("start sandbox: %w", err)
	}
	defer stop()
	dir := p.kubelet.node.file("pods", string(p.object.UID))
	defer os.RemoveAll(dir)
	if err := p.writeFiles(dir); err != nil {
		return fmt.Errorf("write files: %w", err)
	}
	policy := p.object.Spec.RestartPolicy
	for _, c := range p.init {
		again := policy
		if policy == core.RestartPolicyAlways {
			again = core.RestartPolicyOnFailure
		}
		if code := c.keep(ctx, again); code != 0 {
			return nil
		}
	}
	p.mu.Lock()
	p.initiated, p.phase = true, core.PodRunning
	p.mu.Unlock()
	codes := make(chan int)
	for _, c := range p.main {
		go func() { codes <- c.keep(ctx, policy) }()
	}
	phase := core.PodSucceeded
	for range p.main {
		if <-codes != 0 {
			phase = core.PodFailed
		}
	}
	end(phase)
	return nil
}

// prepared waits until all images and volumes are there, and returns false if the pod ends before.
func (p *pod) prepared(ctx context.Context) bool {
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		missing := false
		for _, c := range append(append([]*container(nil), p.init...), p.main...) {
			if _, known := p.kubelet.node.imageDir[c.object.Image]; !known {
				reason := "ErrImagePull"
				if wait > time.Second {
					reason = "ImagePullBackOff"
				}
				c.waits(reason, fmt.Sprintf("failed to pull and unpack image %q: not found", c.object.Image))
				missing = true
			}
		}
		err := p.kubelet.writeVolumes(ctx, p.object, p.kubelet.node.file("pods", string(p.object.UID), "volumes"))
		if err == nil && !missing {
			return true
		}
		if err != nil && !missing {
			for _, c := range p.main {
				c.waits("ContainerCreating", err.Error())
			}
		}
		select {
		case <-p.leave:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// startSandbox makes the pod's namespaces and its network card. stop ends all that is in them.
func (p *pod) startSandbox() (stop func(), err error) {
	n := p.kubelet.node
	address, err := n.lease()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.release(address)
		}
	}()
	stdin, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	defer hold.Close()
	ready, said, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--net", "--mount", "--uts", "--ipc", "--", "/bin/sh", "-c", sandboxScript, "pod",
		hostname(p.object), netip.PrefixFrom(address, network.Bits()).String(), n.address.String())
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, said, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = enter([]namespace{{"pid", n.pid}, {"mnt", n.pid}}, cmd.Start)
	said.Close()
	if err != nil {
		return nil, err
	}
	port := "p" + strings.ReplaceAll(address.String(), ".", "-")
	kill := func() {
		cmd.Process.Kill() // and its child with it
		cmd.Wait()
		n.ip("link delete " + port) // the kernel would remove it some time later
	}
	defer func() {
		if err != nil {
			kill()
		}
	}()
	first, err := onlyChild(cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	if err := n.ip(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, first), fmt.Sprintf("link set %s master pods up", port)); err != nil {
		return nil, err
	}
	if _, err := hold.WriteString("go\n"); err != nil {
		return nil, err
	}
	ready.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := ready.Read(make([]byte, 16)); err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	p.mu.Lock()
	p.address, p.sandbox = address, first
	p.mu.Unlock()
	return func() { kill(); n.release(address) }, nil
}

// writeFiles writes what containers have in /etc.
func (p *pod) writeFiles(dir string) error {
	name, names := hostname(p.object), hostname(p.object)
	if p.object.Spec.Subdomain != "" {
		names = name + "." + p.object.Spec.Subdomain + "." + p.object.Namespace + strings.TrimSuffix(domain, ".") + " " + name
	}
	return errors.Join(
		os.WriteFile(dir+"/hosts", fmt.Appendf(nil, "127.0.0.1 localhost\n::1 localhost\n%s %s\n", p.address, names), 0o644),
		os.WriteFile(dir+"/hostname", []byte(name+"\n"), 0o644),
		os.WriteFile(dir+"/resolv.conf", fmt.Appendf(nil, "nameserver %s\nsearch %s.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n",
			p.kubelet.node.address, p.object.Namespace), 0o644))
}

// status returns the status for the API server.
func (p *pod) status() core.PodStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := core.PodStatus{Phase: p.phase, HostIP: "127.0.0.1", HostIPs: []core.HostIP{{IP: "127.0.0.1"}}, StartTime: &p.started}
	if p.address.IsValid() {
		s.PodIP = p.address.String()
		s.PodIPs = []core.PodIP{{IP: s.PodIP}}
	}
	ready := p.phase == core.PodRunning
	for _, list := range []struct {
		from []*container
		into *[]core.ContainerStatus
	}{{p.init, &s.InitContainerStatuses}, {p.main, &s.ContainerStatuses}} {
		for _, c := range list.from {
			started := c.state.Running != nil
			id := ""
			if c.pid != 0 {
				id = fmt.Sprintf("lab://%d", c.pid)
			} else if c.state.Terminated != nil {
				id = c.state.Terminated.ContainerID
			}
			*list.into = append(*list.into, core.ContainerStatus{Name: c.object.Name, Image: c.object.Image, ImageID: c.object.Image, ContainerID: id,
				State: c.state, LastTerminationState: c.last, RestartCount: c.restarts, Ready: c.ready, Started: &started})
		}
	}
	for _, c := range p.main {
		ready = ready && c.ready
	}
	for _, condition := range []struct {
		kind core.PodConditionType
		is   bool
	}{{core.PodInitialized, p.initiated}, {core.ContainersReady, ready}, {core.PodReady, ready}} {
		status := core.ConditionFalse
		if condition.is {
			status = core.ConditionTrue
		}
		s.Conditions = append(s.Conditions, core.PodCondition{Type: condition.kind, Status: status})
	}
	return s
}

// report passes the status on, if it has changed, and removes the object once the pod was deleted and has ended.
func (p *pod) report(ctx context.Context) error {
	gone := p.gone() // before the status is taken, which is the last one then
	status := p.status()
	text, err := json.Marshal(status)
	if err != nil {
		return err
	}
	if !bytes.Equal(text, p.reported) {
		now := meta.Now()
		for i := range status.Conditions {
			status.Conditions[i].LastTransitionTime = now
		}
		change := map[string]any{"metadata": map[string]any{"uid": p.object.UID}, "status": status}
		if err := p.kubelet.api.call(ctx, "PATCH", p.path+"/status", change, nil); err != nil {
			return err
		}
		p.reported = text
	}
	if gone && !p.deadline.IsZero() && !p.deleted {
		err := p.kubelet.api.call(ctx, "DELETE", p.path, meta.DeleteOptions{GracePeriodSeconds: new(int64),
			Preconditions: &meta.Preconditions{UID: &p.object.UID}}, nil)
		if err != nil {
			return err
		}
		p.deleted = true
	}
	return nil
}
