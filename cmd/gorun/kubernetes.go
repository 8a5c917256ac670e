package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

// kubernetesProgram runs jobs in Kubernetes. Its libraries would make gorun half as large again.
const kubernetesProgram = "gorun-kubernetes"

// kubernetesTable binds the flags of jobs in Kubernetes.
func (o *jobFlags) kubernetesTable() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "kubernetes", Destination: &o.kubernetes,
			Usage: "run the job as a JobSet in Kubernetes, by gorun-kubernetes, and delete it when it has ended"},
		&cli.StringFlag{Name: "image", Destination: &o.image,
			Usage: "`IMAGE` of the pods, with gorun in it, and the program unless --ship brings it"},
		&cli.StringFlag{Name: "namespace", Destination: &o.namespace,
			Usage: "`NAME` of the pods' namespace", DefaultText: "the context's"},
		&cli.StringFlag{Name: "context", Destination: &o.kubeContext,
			Usage: "`NAME` of a context of the kubeconfig", DefaultText: "the current one"},
		&cli.StringFlag{Name: "kubernetes-options", Destination: &o.kubernetesOptions,
			Usage: "`KEY=VALUE,…` for pods: cpu, memory, gpu, shm, volume=CLAIM:/PATH, service-account, pull-secret; for the job: name, queue, ttl, deadline"},
		&cli.StringFlag{Name: "pod-template", Destination: &o.podTemplate,
			Usage: "`FILE` with metadata and spec of a pod, in YAML, which is merged into those of the job: node selectors, tolerations, annotations, other resources"},
	}
}

// checkKubernetes finds mistakes in the flags of a job in Kubernetes, and of one that is not.
func checkKubernetes(o *jobFlags, programs []program) error {
	if !o.kubernetes {
		for _, field := range []any{&o.image, &o.namespace, &o.kubeContext, &o.kubernetesOptions, &o.podTemplate} {
			if o.given(field) {
				return &usageError{fmt.Errorf("--%s is for jobs in Kubernetes", o.names[field]), "add --kubernetes"}
			}
		}
		return nil
	}
	for _, field := range []any{&o.hosts, &o.hostfile, &o.hydraHostfile, &o.cluster, &o.keyFile, &o.launcher, &o.sshCommand, &o.script, &o.detach,
		&o.topologyFile, &o.saveTopology, &o.outputDir, &o.metrics, &o.web, &o.stdin, &o.configFile, &o.moves,
		&o.identityFiles, &o.sshConfig} {
		if o.given(field) {
			return &usageError{fmt.Errorf("--%s excludes --kubernetes", o.names[field]), "pods have neither hosts, nor files, ports or input of this machine"}
		}
	}
	for _, name := range []string{"timeline-filename", "autotune-log-file"} {
		if path := *o.texts[name]; path != "" && !inVolume(path, o.kubernetesOptions) {
			return &usageError{fmt.Errorf("--%s %s: a file of a pod is lost with the pod", name, path), "a volume keeps it: --kubernetes-options volume=CLAIM:/PATH, and /PATH/" + filepath.Base(path)}
		}
	}
	switch {
	case calledHorovodrun(os.Args):
		return &usageError{errors.New("--kubernetes is a flag of gorun, not of horovodrun"), "gorun --kubernetes, with the same flags"}
	case o.image == "":
		return &usageError{errors.New("--kubernetes needs --image"), "--image IMAGE, which has gorun, and the program unless --ship brings it"}
	case !o.given(&o.np) || o.np < 1:
		return &usageError{errors.New("--kubernetes needs -np"), "-np N, and --slots-per-host for the ranks of a pod"}
	case o.given(&o.slotsPerHost) && o.slotsPerHost < 1:
		return &usageError{fmt.Errorf("--%s %d: must be at least 1", o.names[&o.slotsPerHost], o.slotsPerHost), ""}
	case len(programs) != 1 || !slices.Equal(o.args, os.Args[max(0, len(os.Args)-len(o.args)):]):
		return &usageError{errors.New("--kubernetes takes one program, on the command line"), "start a job for each program"}
	}
	return nil
}

// inVolume reports whether a file of pods is in a volume of --kubernetes-options.
func inVolume(path, options string) bool {
	return slices.ContainsFunc(strings.Split(options, ","), func(pair string) bool {
		_, dir, found := strings.Cut(strings.TrimPrefix(pair, "volume="), ":")
		return found && strings.HasPrefix(filepath.Clean(path), strings.TrimSuffix(dir, "/")+"/")
	})
}

// inKubernetes replaces this process by gorun-kubernetes, which runs the job with the same terminal, signals and exit
// status.
func inKubernetes(o *jobFlags, job program) error {
	path, err := findBeside(kubernetesProgram)
	if err != nil {
		return &usageError{errors.New("--kubernetes needs gorun-kubernetes beside gorun or in PATH"), "install the package gorun-kubernetes, or put that program beside gorun"}
	}
	most := o.maxNP
	if o.spares > 0 {
		most = cmp.Or(o.maxNP, o.np) + o.spares
	}
	args := []string{kubernetesProgram, "-image", o.image, "-ranks", strconv.Itoa(o.np), "-slots", strconv.Itoa(max(o.slotsPerHost, 1)),
		"-least", strconv.Itoa(o.minNP), "-most", strconv.Itoa(most), "-namespace", o.namespace, "-context", o.kubeContext,
		"-options", o.kubernetesOptions, "-dry-run=" + strconv.FormatBool(o.dryRun)}
	if o.given(&o.podTemplate) {
		args = append(args, "-pod-template", o.podTemplate)
	}
	brings := o.ships() || o.python != ""
	if brings {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this binary: %w", err)
		}
		args = append(args, "-bring", self)
	}
	if o.given(&o.connectRetry) {
		args = append(args, "-wait", o.connectRetry.Truncate(time.Millisecond).String())
	}
	words := flagsForPods(o.set)
	if len(job.Env) > 0 {
		variables, names, err := passVariables(job.Env)
		if err != nil {
			return fmt.Errorf("pass on variables: %w", err)
		}
		defer variables.Close()
		args = append(args, "-variables", strconv.Itoa(int(variables.Fd())))
		if !brings { // such a job has them in a file
			for _, name := range names {
				words = append(words, "-x", name)
			}
		}
	}
	args = append(append(append(args, "--"), words...), o.args...)
	if err := syscall.Exec(path, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", kubernetesProgram, err)
	}
	return nil
}

// findBeside finds a program beside this one, or in PATH.
func findBeside(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// ofThisMachine are flags that take effect on this machine, and are not passed to the launcher in a pod. It gets
// variables by name instead.
var ofThisMachine = []string{"kubernetes", "image", "namespace", "context", "kubernetes-options", "pod-template", "slots-per-host", "dry-run", "connect-retry",
	"x", "env", "envlist", "genv", "genvlist", "genvall", "env-file"}

// flagsForPods returns the flags that the launcher in a pod gets: those that the user gave, or set by variables.
func flagsForPods(given []cli.Flag) (words []string) {
	for _, f := range given {
		var values []string
		switch field := fieldOf(f).(type) {
		case *pairs:
			values = *field
		case *cli.StringSlice:
			values = field.Value()
		default:
			values = []string{fmt.Sprint(reflect.ValueOf(field).Elem())}
			if g, ok := f.(*cli.GenericFlag); ok {
				values[0] = g.Value.String()
			}
		}
		for _, value := range values {
			if name := f.Names()[0]; !slices.Contains(ofThisMachine, name) {
				words = append(words, "--"+name+"="+value)
			}
		}
	}
	return words
}

// passVariables writes variables to a file without a name, which stays open when another program replaces this process.
// Other users could read them in its arguments.
func passVariables(env []string) (file *os.File, names []string, err error) {
	values := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if _, again := values[name]; !again {
			names = append(names, name)
		}
		values[name] = value
	}
	if file, err = os.CreateTemp("", "gorun-"); err != nil {
		return nil, nil, err
	}
	err = errors.Join(os.Remove(file.Name()), json.NewEncoder(file).Encode(values))
	if err == nil {
		_, err = file.Seek(0, 0)
	}
	if err == nil {
		_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_SETFD, 0)
		if errno != 0 {
			err = errno
		}
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, names, nil
}
