package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
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
	// bringLimit is how long the launcher's pod waits for the job once there are workers: its files may take a while.
	bringLimit = time.Hour
	// stopLimit is how long one worker has to stop the job, with the grace that its ranks have.
	stopLimit = 30 * time.Second
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

// survives reports whether a job goes on without the worker that its launcher runs on.
func (j *job) survives() bool { return j.least < j.most && j.pods(j.most) > 2 }

// bring submits the job to a worker.
func (r *runner) bring(ctx context.Context, worker *core.Pod) {
	brought := make(chan struct{})
	r.at, r.brought = worker.UID, brought
	go func() {
		defer close(brought)
		r.code, r.unable = r.submit(ctx, worker.Name)
	}()
}

// submit has gorun bring the job to a worker. Its variables are for the ranks, not for gorun, uv and pip on this machine: a file has them.
func (r *runner) submit(ctx context.Context, worker string) (code int, err error) {
	text, words, env := r.job.variablesFile()
	words = append([]string{"--detach", "--env-none", "--connect-retry=" + r.job.patience()}, words...)
	if text != "" {
		file, err := private(text)
		if err != nil {
			return 0, fmt.Errorf("keep the variables of the job: %w", err)
		}
		defer os.Remove(file)
		words = append(words, "--env-file="+file)
	}
	return r.gorun(ctx, worker, nil, append(words, r.job.words...), env, r.note)
}

// variablesFile returns the job's variables as a file for --env-file. Those that it cannot have are named in the words of gorun, and are in
// its environment. gorun translates PYTHONPATH for the ranks only if it is a word itself.
func (j *job) variablesFile() (text string, words, env []string) {
	for _, name := range slices.Sorted(maps.Keys(j.variables)) {
		switch value := j.variables[name]; {
		case strings.ContainsAny(name, ".-") || strings.ContainsAny(value, "\r\n"):
			words, env = append(words, "-x", name), append(env, name+"="+value)
		case name == "PYTHONPATH":
			words = append(words, "-x", name+"="+value)
		default:
			text += name + `="` + value + "\"\n"
		}
	}
	return text, words, env
}

// private makes a file that only this user reads.
func private(text string) (name string, err error) {
	file, err := os.CreateTemp("", "gorun-")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		os.Remove(file.Name())
	}
	return file.Name(), err
}

// takeBack stops the job unless it has ended: its workers would wait for it. Those that are being deleted still answer.
func (r *runner) takeBack(ctx context.Context) {
	select {
	case <-r.brought:
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, goneLimit)
	defer cancel()
	var pods core.PodList
	if r.over || r.list(ctx, podPath, url.Values{"labelSelector": {setLabel + "=" + r.job.name}}, &pods) != nil {
		return
	}
	// From here a worker answers for itself alone. The job's launcher is where the job was brought to, unless another one carries it on.
	at := slices.IndexFunc(pods.Items, func(p core.Pod) bool { return p.UID == r.at })
	for i := range pods.Items {
		p := &pods.Items[(max(at, 0)+i)%len(pods.Items)]
		if p.Labels[partLabel] != workerPart || !started(p) || ended(p) != nil {
			continue
		}
		one, cancel := context.WithTimeout(ctx, stopLimit)
		code, err := r.gorun(one, p.Name, []string{"stop"}, nil, nil, func(string, ...any) {})
		cancel()
		if err == nil && code == 0 || ctx.Err() != nil {
			return
		}
	}
}

// unreached is an error of a port that is to be forwarded. Nothing was submitted then.
type unreached struct{ error }

func (u unreached) Unwrap() error { return u.error }

// gorun runs a command of gorun with the daemon of a worker, and returns its exit status.
func (r *runner) gorun(ctx context.Context, worker string, command, words, env []string, note func(format string, args ...any)) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	port, ended, err := r.forward(ctx, worker)
	defer func() {
		cancel()
		if ended != nil {
			<-ended
		}
	}()
	if err != nil {
		return 0, &failure{unreached{fmt.Errorf("forward a port to pod %s: %w", worker, err)}, "contrib/kubernetes/role.yaml has the permissions that it takes"}
	}
	key, err := private(r.job.key)
	if err != nil {
		return 0, fmt.Errorf("keep the key of the job: %w", err)
	}
	defer os.Remove(key)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.CommandContext(ctx, r.job.gorun, slices.Concat(command, []string{"--cluster=" + address, "--cluster-key-file=" + key}, words)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), env...)
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, fmt.Errorf("start gorun: %w", err)
	}
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if line := lines.Text(); !strings.HasPrefix(line, "gorun: job ") { // how it would be reached in a cluster
			note("%s", strings.ReplaceAll(line, address, worker))
		}
	}
	io.Copy(io.Discard, said)
	err = cmd.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return max(cmd.ProcessState.ExitCode(), 1), nil
	}
	return 0, err
}

// forward has a port of this machine lead to a worker's daemon until ctx ends, and then ended gets why. The daemon and who comes show each
// other the key.
func (r *runner) forward(ctx context.Context, worker string) (port uint16, ended <-chan error, err error) {
	at := r.base.JoinPath("api/v1/namespaces", r.namespace, "pods", worker, "portforward")
	transport, upgrader, err := spdy.RoundTripperFor(r.config)
	if err != nil {
		return 0, nil, err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	ready, failed := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:" + daemonPort}, ctx.Done(), ready, nil, nil)
	if err != nil {
		return 0, nil, err
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return 0, nil, errors.Join(err, ctx.Err())
	case <-ctx.Done(): // the library cannot be told to dial no longer; nobody waits for it
		return 0, nil, ctx.Err()
	case <-time.After(callLimit):
		return 0, nil, errors.New("no answer of the API server")
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return 0, failed, err
	}
	return ports[0].Local, failed, nil
}
