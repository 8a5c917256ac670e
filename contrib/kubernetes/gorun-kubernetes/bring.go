package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// A job that brings its program, or an environment of Python, is a detached job of the workers, which gorun on this machine submits
// through a port that the API server forwards. The launcher's pod is attached to it.

const (
	// daemonPort is where a worker's daemon listens, as in jobset.yaml.
	daemonPort = "7575"
	// bringLimit is how long the launcher's pod waits for the job: its files may take a while.
	bringLimit = time.Hour
)

// worker returns a worker that takes jobs, nil while there is none.
func (s *seen) worker() *core.Pod {
	for i := range s.pods {
		p := &s.pods[i]
		ready := slices.ContainsFunc(p.Status.Conditions, func(c core.PodCondition) bool { return c.Type == core.PodReady && c.Status == core.ConditionTrue })
		if p.Labels[partLabel] == workerPart && ready && p.DeletionTimestamp == nil && !disrupted(p) {
			return p
		}
	}
	return nil
}

// bring submits the job to a worker, once.
func (r *runner) bring(ctx context.Context, worker *core.Pod) {
	brought := make(chan struct{})
	r.at, r.brought = worker.Name, brought
	go func() {
		defer close(brought)
		r.code, r.unable = r.gorun(ctx, nil, append([]string{"--detach", "--env-none", "--connect-retry=" + r.job.patience()}, r.job.words...), r.note)
	}()
}

// takeBack stops the job unless it has ended: its workers would wait for it.
func (r *runner) takeBack(ctx context.Context) {
	<-r.brought
	select {
	case <-r.follower:
	default:
		r.gorun(ctx, []string{"stop"}, nil, func(string, ...any) {})
	}
}

// gorun runs a command of gorun with the daemon of the worker that the job was submitted to, and returns its exit status.
func (r *runner) gorun(ctx context.Context, command, words []string, note func(format string, args ...any)) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	port, err := r.forward(ctx)
	if err != nil {
		return 0, &failure{fmt.Errorf("forward a port to pod %s: %w", r.at, err), "contrib/kubernetes/role.yaml has the permissions that it takes"}
	}
	key, err := os.CreateTemp("", "gorun-key-")
	if err == nil {
		defer os.Remove(key.Name())
		_, err = key.WriteString(r.job.key)
		err = errors.Join(err, key.Close())
	}
	if err != nil {
		return 0, fmt.Errorf("keep the key of the job: %w", err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.CommandContext(ctx, r.job.gorun, slices.Concat(command, []string{"--cluster=" + address, "--cluster-key-file=" + key.Name()}, words)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = os.Environ()
	for name, value := range r.job.variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, fmt.Errorf("start gorun: %w", err)
	}
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if line := lines.Text(); !strings.HasPrefix(line, "gorun: job ") { // how it would be reached in a cluster
			note("%s", strings.ReplaceAll(line, address, r.at))
		}
	}
	io.Copy(io.Discard, said)
	err = cmd.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return max(cmd.ProcessState.ExitCode(), 1), nil
	}
	return 0, err
}

// forward has a port of this machine lead to the worker's daemon until ctx ends. The daemon and who comes show each other the key.
func (r *runner) forward(ctx context.Context) (port uint16, err error) {
	at := r.base.JoinPath("api/v1/namespaces", r.namespace, "pods", r.at, "portforward")
	transport, upgrader, err := spdy.RoundTripperFor(r.config)
	if err != nil {
		return 0, err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	ready, failed := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:" + daemonPort}, ctx.Done(), ready, nil, nil)
	if err != nil {
		return 0, err
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return 0, errors.Join(err, ctx.Err())
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return 0, err
	}
	return ports[0].Local, nil
}
