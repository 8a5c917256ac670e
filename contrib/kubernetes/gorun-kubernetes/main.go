// Command gorun-kubernetes runs a job of gorun in Kubernetes, as gorun --kubernetes asks it to.
//
//	gorun-kubernetes -image IMAGE -ranks 4 -slots 2 -- -np 4 python3 train.py
//
// It makes a JobSet of a launcher and workers out of contrib/kubernetes/jobset.yaml, waits for its pods, shows what the
// launcher prints, deletes all of it and exits with the launcher's status. The arguments after -- are for gorun in the
// launcher's pod. If this program is killed, the job goes on to its end, and Kubernetes deletes it an hour later.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/runtime"
	exact "sigs.k8s.io/json"
	strict "sigs.k8s.io/yaml"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// request is the command line.
type request struct {
	job
	namespace, context string
	dryRun             bool
}

// run is the program; it returns its exit status.
func run(args []string, out, errs io.Writer) int {
	note := func(format string, args ...any) { fmt.Fprintf(errs, format+"\n", args...) }
	signal.Ignore(syscall.SIGPIPE) // the job ends with an error if its output cannot be written
	runtime.ErrorHandlers = nil    // or client-go prints how a connection over a forwarded port ended, which gorun tells if it matters
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	ctx, stop := context.WithCancel(context.Background())
	hurry, leave := context.WithCancel(context.Background())
	defer leave()
	defer stop()
	asked := make(chan int, 1)
	go func() {
		first := <-signals
		asked <- 128 + int(first.(syscall.Signal))
		note("gorun: deleting the JobSet; press Ctrl-C again not to wait for its pods")
		stop()
		<-signals
		leave()
	}()
	code, err := start(ctx, hurry, args, out, note)
	select {
	case code := <-asked:
		return code
	default:
	}
	return explain(err, code, note)
}

// explain prints an error with its hint, and returns the exit status.
func explain(err error, code int, note func(string, ...any)) int {
	if err == nil {
		return code
	}
	note("gorun: error: %v", err)
	m, usage := errors.AsType[*mistake](err)
	f, _ := errors.AsType[*failure](err)
	switch {
	case usage && m.hint != "":
		note("gorun: hint: %s", m.hint)
	case f != nil && f.hint != "":
		note("gorun: hint: %s", f.hint)
	}
	if usage {
		return 2
	}
	return 1
}

func start(ctx, hurry context.Context, args []string, out io.Writer, note func(string, ...any)) (int, error) {
	q, err := parse(args)
	if err != nil {
		return 0, err
	}
	if q.dryRun {
		return 0, q.print(out)
	}
	c, err := newClient(q.context, q.namespace)
	if err != nil {
		return 0, err
	}
	r := runner{client: c, job: &q.job, out: out, note: note}
	return r.run(ctx, hurry)
}

// parse reads the command line. gorun has checked its numbers.
func parse(args []string) (q request, err error) {
	flags := flag.NewFlagSet("gorun-kubernetes", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&q.image, "image", "", "")
	flags.IntVar(&q.ranks, "ranks", 0, "")
	flags.IntVar(&q.least, "least", 0, "")
	flags.IntVar(&q.most, "most", 0, "")
	flags.IntVar(&q.slots, "slots", 1, "")
	flags.StringVar(&q.namespace, "namespace", "", "")
	flags.StringVar(&q.context, "context", "", "")
	flags.DurationVar(&q.wait, "wait", 10*time.Minute, "")
	flags.BoolVar(&q.dryRun, "dry-run", false, "")
	flags.StringVar(&q.gorun, "bring", "", "")
	variables := flags.Int("variables", -1, "")
	options := flags.String("options", "", "")
	template := flags.String("pod-template", "", "")
	if err := flags.Parse(args); err != nil {
		return q, &mistake{err, "gorun --kubernetes starts this program"}
	}
	if q.image == "" || q.ranks < 1 || q.slots < 1 || flags.NArg() == 0 {
		return q, &mistake{errors.New("no image, ranks, slots or program"), "gorun --kubernetes starts this program"}
	}
	q.least, q.most = orElse(q.least, q.ranks), max(q.most, q.ranks)
	q.words = flags.Args()
	if q.options, err = parseOptions(*options, q.slots); err != nil {
		return q, err
	}
	if q.template, err = readTemplate(*template); err != nil {
		return q, err
	}
	if q.variables, err = readVariables(*variables); err != nil {
		return q, err
	}
	q.name = q.options.name
	if q.name == "" {
		q.name = "gorun-" + strings.ToLower(rand.Text()[:6])
	}
	if !regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`).MatchString(q.name) {
		return q, &mistake{fmt.Errorf("--kubernetes-options name=%s: want up to 40 small letters, digits and dashes", q.name), "name=train"}
	}
	return q, nil
}

// readTemplate reads a pod's metadata and spec, and returns them as JSON; nil for no file.
func readTemplate(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err == nil {
		text, err = strict.YAMLToJSONStrict(text)
	}
	pods := new(core.PodTemplateSpec)
	if err == nil {
		var wrong []error
		wrong, err = exact.UnmarshalStrict(text, pods)
		err = errors.Join(append(wrong, err)...)
	}
	for _, c := range pods.Spec.Containers {
		if err == nil && c.Name != launcherPart && c.Name != workerPart {
			err = fmt.Errorf("container %q: they are %s and %s", c.Name, launcherPart, workerPart)
		}
	}
	if err != nil {
		return nil, &mistake{fmt.Errorf("--pod-template %s: %w", path, err), "it has metadata and spec, as the template in a Deployment"}
	}
	return text, nil
}

func orElse(n, other int) int {
	if n > 0 {
		return n
	}
	return other
}

// ofThePods are variables that the launcher itself uses in its pod.
var ofThePods = []string{"HOME", "JOBSET", "PATH"}

// readVariables reads an object of JSON from an open file: the names of variables and their values.
func readVariables(descriptor int) (map[string]string, error) {
	if descriptor < 0 {
		return nil, nil
	}
	file := os.NewFile(uintptr(descriptor), "variables")
	defer file.Close()
	all := map[string]string{}
	if err := json.NewDecoder(file).Decode(&all); err != nil {
		return nil, fmt.Errorf("read variables: %w", err)
	}
	for name := range all {
		if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`).MatchString(name) {
			return nil, &mistake{fmt.Errorf("-x %s: Kubernetes takes no variable of this name", name), "leave it out, or set it in the program"}
		}
		if slices.Contains(ofThePods, name) || strings.HasPrefix(name, "GORUN_") {
			return nil, &mistake{fmt.Errorf("-x %s: pods have their own", name), "env " + name + "=… program sets it for the ranks"}
		}
	}
	return all, nil
}

// print writes the objects, for kubectl apply.
func (q *request) print(out io.Writer) error {
	all, err := q.objects()
	for _, o := range all {
		o.meta.Namespace = q.namespace
		text, wrong := strict.Marshal(o.value)
		err = errors.Join(err, wrong)
		fmt.Fprintf(out, "---\n%s", text)
	}
	return err
}
