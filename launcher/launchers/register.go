package launchers

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gorun/launcher"
	"gorun/launcher/jobs"
)

// endTimeout is how long End waits for the file system of a job in the foreground.
const endTimeout = 3 * time.Second

// Registration is the place of a job among the user's jobs. Its methods do nothing on nil.
type Registration struct {
	askUsage   chan struct{}
	whys       chan launcher.Why
	drains     chan launcher.Drain
	background *background // nil of a detached job

	recorder jobs.Recorder

	mu      sync.Mutex
	job     jobs.Job
	server  *jobs.Server
	record  jobs.Record
	ranks   []jobs.RankStatus
	ran     bool                       // a rank has started
	epoch   uint32                     // the latest that a host has reported
	carried map[string]jobs.HostStatus // by host

	events  []happening    // the latest
	counted map[string]int // of each kind
}

// openRegistration registers the job whose directory was made before.
func openRegistration(job jobs.Job) (*Registration, error) {
	r := newRegistration()
	r.job = job
	var err error
	if r.record, err = job.Load(); err != nil {
		return nil, err
	}
	if err := r.Update(func(record *jobs.Record) { record.PID = os.Getpid() }); err != nil {
		return nil, err
	}
	r.server, err = job.Serve(r.answer)
	return r, err
}

func newRegistration() *Registration {
	return &Registration{askUsage: make(chan struct{}, 1), whys: make(chan launcher.Why), drains: make(chan launcher.Drain)}
}

// signal does what a terminal would, and notes who stops the job.
func (r *Registration) signal(number int, by string) error {
	sig := syscall.Signal(number)
	switch sig {
	case unix.SIGINT, unix.SIGTERM:
		if by == "" {
			by = unix.SignalName(sig)
		}
		r.Stopping(by)
	case unix.SIGUSR1, unix.SIGUSR2:
	default:
		return fmt.Errorf("signal %d is not passed on", number)
	}
	return unix.Kill(os.Getpid(), sig)
}

// Stopping notes who stops the job, or what does. The first one counts.
func (r *Registration) Stopping(by string) {
	if r == nil {
		return
	}
	r.change(func(record *jobs.Record) {
		if record.Stopping.IsZero() {
			record.Stopping, record.StoppedBy = time.Now(), by
			r.event(record.Stopping, "stopping", "the job is stopped by "+by)
		}
	})
}

// StoppingAfter calls Stopping when ctx ends, with a text made of the cause, until release is called.
func (r *Registration) StoppingAfter(ctx context.Context, by func(cause error) string) (release func() bool) {
	return context.AfterFunc(ctx, func() { r.Stopping(by(context.Cause(ctx))) })
}

// Record returns the record as it is now.
func (r *Registration) Record() jobs.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.record
	record.Silent, record.Partitions = maps.Clone(record.Silent), slices.Clone(record.Partitions)
	return record
}

// Update changes the record. Any goroutine may call it.
func (r *Registration) Update(change func(*jobs.Record)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.record)
	if r.background != nil {
		r.background.wake()
		return nil
	}
	return r.job.Save(r.record)
}

// Recording returns the path for what the job's ranks did last, "" if the job has no directory.
func (r *Registration) Recording() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.job.Dir == "" {
		return ""
	}
	return r.job.Recording()
}

// change is Update for what is not worth ending a job: a failure is a warning in the job's output.
func (r *Registration) change(change func(*jobs.Record)) {
	if err := r.Update(change); err != nil {
		complain("warning", err)
	}
}

// Supersede records that another launcher has taken over. The mutex stays locked, so that this launcher records no
// other end of the job after it.
func (r *Registration) Supersede() {
	r.mu.Lock()
	r.record.Ended, r.record.Moved = time.Now(), true
	if err := r.job.Save(r.record); err != nil {
		complain("error", err)
	}
}

// End records the end of the job, with the error that the user has read, and reports it to clients that wait. Nothing
// is left of a foreground job that ended before its ranks ran.
func (r *Registration) End(code int, why string) {
	if r == nil {
		return
	}
	err := r.Update(func(record *jobs.Record) {
		record.Ended, record.Code, record.Silent, record.Partitions = time.Now(), code, nil, nil
		record.Why = why
	})
	switch {
	case r.background != nil:
		r.background.end()
		return
	case err != nil:
		complain("error", err)
	}
	r.server.End(code)
}

// complain writes into the job's output.
func complain(level string, err error) { fmt.Fprintf(os.Stderr, "gorun: %s: %v\n", level, err) }
