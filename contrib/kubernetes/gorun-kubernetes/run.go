package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	lookInterval = time.Second
	// goneLimit bounds the wait for the end of all pods after the JobSet was deleted.
	goneLimit = 3 * time.Minute
	// orderLimit bounds one request to delete the JobSet.
	orderLimit = 10 * time.Second
)

// mistake is an error with a hint, for exit status 2.
type mistake struct {
	error
	hint string
}

func (m *mistake) Unwrap() error { return m.error }

// failure is an error with a hint.
type failure struct {
	error
	hint string
}

func (f *failure) Unwrap() error { return f.error }

// runner runs a job and shows how it goes.
type runner struct {
	*client
	job  *job
	out  io.Writer
	note func(format string, args ...any)

	said     map[string]bool // what was shown
	ran      int             // pods, as shown last
	limit    time.Time       // for the pods
	complete bool            // enough pods have run for the job to begin

	// followed is the pod of the launcher whose log is copied, or was last. follower is closed once the log has been
	// copied, and nil while none is. unread is then why a part of the log is missing.
	followed core.Pod

	at      types.UID     // the worker that the job was brought to, "" before
	brought chan struct{} // closed once that has ended, with these results
	code    int
	unable  error
	taken   bool // the launcher's pod was taken away
	over    bool // the job has ended by itself

	follower chan struct{}
	unread   error
}

// run creates the objects of a job, shows its output, deletes the objects and returns its exit status.
func (r *runner) run(ctx, hurry context.Context) (code int, err error) {
	uid, err := r.create(hurry) // a first Ctrl-C does not leave half of it
	if err != nil {
		if uid != "" {
			r.clear(hurry, uid)
		}
		return 0, err
	}
	r.note("gorun: JobSet %s in namespace %s: a launcher and %d workers with %d slots each", r.job.name, r.namespace, r.job.pods(r.job.most), r.job.slots)
	r.said, r.limit = map[string]bool{}, time.Now().Add(r.job.wait)
	following, stop := context.WithCancel(hurry)
	defer stop()
	ctx, end := context.WithCancel(ctx)
	code, err = r.watch(ctx, following, uid)
	end() // also of what still brings the job
	r.clear(hurry, uid)
	return code, err
}

// clear deletes the JobSet. If it cannot, it shows how to do so. Workers would wait for a job that they host.
func (r *runner) clear(ctx context.Context, uid string) {
	if r.brought != nil {
		r.takeBack(ctx)
	}
	if err := r.remove(ctx, uid); err != nil {
		r.note("gorun: warning: %v; kubectl delete -n %s jobset %s", err, r.namespace, r.job.name)
	}
}

// create makes the objects, the JobSet first. The others are its own, so they end with it.
func (r *runner) create(ctx context.Context) (uid string, err error) {
	all, err := r.job.objects()
	if err != nil {
		return "", err
	}
	for i, o := range all {
		if i > 0 {
			o.meta.OwnerReferences = []meta.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: r.job.name, UID: all[0].meta.UID}}
		}
		var made struct{ Metadata meta.ObjectMeta }
		err := r.call(ctx, "POST", r.address(o.path, "", nil), o.value, &made)
		switch {
		case err == nil && i == 0:
			all[0].meta.UID = made.Metadata.UID
		case err != nil && o.spare != "" && refused(err) == http.StatusForbidden:
			r.note("gorun: warning: %s: %v", o.spare, err)
		case err != nil:
			if i == 0 && (refused(err) == 0 || refused(err) >= 500) {
				all[0].meta.UID = r.made(ctx, all[0].meta.Annotations[ownerKey])
			}
			return string(all[0].meta.UID), r.explain("create "+strings.TrimSuffix(o.path[strings.Index(o.path, " ")+1:], "s"), err)
		}
	}
	return string(all[0].meta.UID), nil
}

// made returns the UID of a JobSet that was created although the answer was lost, "" if there is none.
func (r *runner) made(ctx context.Context, owner string) types.UID {
	for range 3 {
		set := new(jobSet)
		err := r.call(ctx, "GET", r.address(setPath, r.job.name, nil), nil, set)
		switch {
		case err == nil && set.Metadata.Annotations[ownerKey] == owner:
			return set.Metadata.UID
		case err == nil || refused(err) != 0 && refused(err) < 500:
			return ""
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(again):
		}
	}
	return ""
}

// explain adds what to do about an answer of the API server.
func (r *runner) explain(what string, err error) error {
	f := &failure{error: fmt.Errorf("%s: %w", what, err)}
	switch refused(err) {
	case 0:
		f.hint = "kubectl get pods must work first"
	case http.StatusForbidden:
		f.hint = "contrib/kubernetes/role.yaml has the permissions that it takes"
		if strings.Contains(err.Error(), "exceeded quota") {
			f.hint = "kubectl describe quota shows what is used"
		}
	case http.StatusUnauthorized:
		f.hint = "log in again, so that kubectl get pods works"
	case http.StatusNotFound:
		f.hint = "install JobSet: https://jobset.sigs.k8s.io/docs/installation"
		if strings.Contains(err.Error(), "namespaces") {
			f.hint = "kubectl create namespace " + r.namespace + ", or --namespace NAME"
		}
	case http.StatusConflict:
		f.hint = "name it otherwise: --kubernetes-options name=…"
	default:
		f.hint = "gorun --kubernetes --dry-run prints the objects"
	}
	return f
}

// watch shows how the pods come up, follows the launcher's log and returns its exit status.
func (r *runner) watch(ctx, following context.Context, uid string) (code int, err error) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var brought chan struct{}
	for {
		s, err := r.look(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case refused(err) != 0 && refused(err) < 500:
			return 0, r.explain("watch JobSet "+r.job.name, err)
		case err != nil:
			r.once(fmt.Sprintf("gorun: warning: %v; trying again", err))
		case s.set == nil || string(s.set.Metadata.UID) != uid:
			return 0, &failure{fmt.Errorf("JobSet %s was deleted", r.job.name), "its output ends here"}
		default:
			if p := s.launcher(); r.follower == nil && started(p) && p.UID != r.followed.UID {
				r.attend(following, p)
			}
			if brought == nil && r.gone(s) {
				r.at, r.brought, r.taken = "", nil, false
			}
			if w := s.worker(); r.job.gorun != "" && r.at == "" && w != nil {
				r.bring(ctx, w)
				brought = r.brought
			}
			if err := r.progress(s); err != nil {
				return 0, err
			}
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-brought:
			brought = nil
			if r.mayRetry() {
				r.once(fmt.Sprintf("gorun: warning: %v; trying again", r.unable))
				r.at, r.brought = "", nil
			} else if r.unable != nil || r.code != 0 {
				return r.code, r.unable
			}
		case <-r.follower:
			if code, r.over, err = r.outcome(ctx); r.over || err != nil {
				return code, err
			}
		case <-tick.C:
		}
	}
}

// gone reports whether the job went with its worker, so that it is to be brought again. The launcher's pod tells how a job ended unless it
// was taken away too.
func (r *runner) gone(s *seen) bool {
	return r.at != "" && r.taken && (!r.job.survives() || s.worker() == nil) &&
		!slices.ContainsFunc(s.pods, func(p core.Pod) bool { return p.UID == r.at })
}

// mayRetry reports whether the job did not reach its worker, and still may.
func (r *runner) mayRetry() bool {
	_, early := errors.AsType[unreached](r.unable)
	return early && !strings.Contains(r.unable.Error(), "forbidden") && time.Now().Before(r.limit)
}

// look asks for the state of the JobSet, its pods, and what hinders its Jobs.
func (r *runner) look(ctx context.Context) (*seen, error) {
	s := &seen{set: new(jobSet)}
	var pods core.PodList
	var events core.EventList
	err := r.call(ctx, "GET", r.address(setPath, r.job.name, nil), nil, s.set)
	if refused(err) == http.StatusNotFound {
		return &seen{}, nil
	}
	if err == nil {
		err = r.list(ctx, podPath, url.Values{"labelSelector": {setLabel + "=" + r.job.name}}, &pods)
	}
	if err == nil {
		err = r.list(ctx, eventPath, url.Values{"fieldSelector": {"involvedObject.kind=Job,reason=FailedCreate"}}, &events)
		if refused(err) == http.StatusForbidden { // what hinders Jobs is not shown then
			err = nil
		}
	}
	s.pods = pods.Items
	s.events = s.set.concerned(events.Items)
	return s, err
}

// progress shows what has changed since the last look, until the job can begin. It returns an error once waiting does not help.
func (r *runner) progress(s *seen) error {
	if why := s.failed(); why != "" && r.follower == nil {
		return &failure{fmt.Errorf("JobSet %s has failed: %s", r.job.name, why), s.lastWords()}
	}
	if r.complete {
		return nil
	}
	if s.suspended() { // a queue may keep it for days
		r.limit = time.Now().Add(r.job.wait)
	}
	all, late := r.job.pods(r.job.most)+1, time.Now().After(r.limit)
	if n := s.running(); n != r.ran {
		r.ran = n
		r.note("gorun: %d of %d pods run", n, all)
	}
	if r.complete = r.ran > r.job.pods(r.job.least) && r.follower != nil; r.complete {
		return nil
	}
	for _, t := range s.troubles() {
		text := fmt.Sprintf("%s: %s", t.what, t.why)
		if t.final || late {
			return &failure{errors.New(text), t.hint}
		}
		r.once(fmt.Sprintf("gorun: waiting for %s\ngorun: hint: %s", text, t.hint))
	}
	if late {
		return &failure{fmt.Errorf("%d of %d pods of JobSet %s run after %v", r.ran, all, r.job.name, r.job.wait), "--connect-retry TIME waits longer"}
	}
	return nil
}

// once shows a text unless it was shown before.
func (r *runner) once(text string) {
	if !r.said[text] {
		r.said[text] = true
		r.note("%s", text)
	}
}

// attend begins to copy a launcher's log.
func (r *runner) attend(ctx context.Context, p *core.Pod) {
	if r.followed.Name != "" && r.job.gorun != "" {
		r.note("gorun: the job's output comes once more, by pod %s", p.Name)
	} else if r.followed.Name != "" {
		r.note("gorun: the launcher begins again, from the program's last checkpoint, in pod %s", p.Name)
	}
	logs, name := &logReader{to: r.out, again: again}, p.Name
	done, warned := make(chan struct{}), false
	r.follower, r.followed = done, *p
	go func() {
		defer close(done)
		r.unread = logs.follow(ctx, r.client, name, func(err error) {
			if !warned {
				r.note("gorun: warning: read log of pod %s: %v; trying again", name, err)
			}
			warned = true
		})
	}()
}

// outcome returns the exit status of a launcher whose log has ended. over is false if Kubernetes has taken its pod away: the Job
// starts another one, or the JobSet has failed.
func (r *runner) outcome(ctx context.Context) (code int, over bool, err error) {
	if r.unread != nil && refused(r.unread) == 0 {
		return 0, false, r.unread
	}
	if r.unread != nil {
		return 0, false, r.explain("read log of pod "+r.followed.Name, r.unread)
	}
	var p core.Pod
	err = r.call(ctx, "GET", r.address(podPath, r.followed.Name, nil), nil, &p)
	if err != nil && refused(err) != http.StatusNotFound {
		return 0, false, r.explain("read status of pod "+r.followed.Name, err)
	}
	if t := ended(&p); err == nil && t != nil && p.DeletionTimestamp == nil && !disrupted(&p) {
		if hint := starting(t.Message); t.Reason == "StartError" || t.Reason == "ContainerCannotRun" {
			return 0, false, &failure{fmt.Errorf("%s: %s: %s", p.Name, t.Reason, t.Message), hint}
		}
		return int(t.ExitCode), true, nil
	}
	r.note("gorun: warning: the launcher's pod %s was taken away", r.followed.Name) // a later look shows what follows
	r.taken = true
	r.follower, r.complete, r.ran, r.limit = nil, false, 0, time.Now().Add(r.job.wait)
	return 0, false, nil
}

// remove deletes the JobSet and waits until nothing of it is left. What the launcher still prints is shown.
func (r *runner) remove(ctx context.Context, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, goneLimit)
	defer cancel()
	own, foreground := types.UID(uid), meta.DeletePropagationForeground
	how := meta.DeleteOptions{PropagationPolicy: &foreground, Preconditions: &meta.Preconditions{UID: &own}}
	for wait := again; ; {
		err := r.order(ctx, how)
		if status := refused(err); status == http.StatusNotFound || status == http.StatusConflict { // gone, or another one
			break
		} else if err != nil && status != 0 && status < 500 {
			return fmt.Errorf("delete JobSet %s: %w", r.job.name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("JobSet %s is not gone yet", r.job.name)
		case <-time.After(wait):
		}
	}
	if err := r.awaitPods(ctx); err != nil {
		return err
	}
	if r.follower != nil {
		select {
		case <-r.follower:
		case <-time.After(2 * time.Second):
		}
	}
	return nil
}

// order asks for the end of the JobSet, also when the user no longer waits for it.
func (r *runner) order(ctx context.Context, how meta.DeleteOptions) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orderLimit)
	defer cancel()
	return r.call(ctx, "DELETE", r.address(setPath, r.job.name, nil), how, nil)
}

// awaitPods waits until no pod is left of the JobSet.
func (r *runner) awaitPods(ctx context.Context) error {
	for {
		var list meta.PartialObjectMetadataList
		err := r.list(ctx, podPath, url.Values{"labelSelector": {setLabel + "=" + r.job.name}}, &list)
		if refused(err) == http.StatusForbidden || err == nil && len(list.Items) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pods of JobSet %s are not gone yet", r.job.name)
		case <-time.After(again):
		}
	}
}
