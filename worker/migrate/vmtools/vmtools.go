// Package vmtools drives package migrate: it runs VMware's vmtoolsd and vmware-toolbox-cmd. Run works on the caller's
// goroutine, and polls the session on another one, since that may take long; it waits for that. It keeps the token of a
// registration in a file for as long as it runs, and ends the registration: vSphere allows one application per machine,
// and after a kill -9 a process that finds the token can still end its registration. The package decides nothing.
package vmtools

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gorun/worker/migrate"
)

const (
	// callLimit is how long a command may take; it takes some milliseconds when all is well.
	callLimit = 5 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 64 << 10
)

// Config configures a watch.
type Config struct {
	Path string // of vmtoolsd; vmware-toolbox-cmd is looked for beside it
	// Token is the file of the registration's token, one for each user and machine, "" to keep it nowhere. The process
	// that holds its lock is registered, the others wait for their turn.
	Token string
	// Handle is called for each event. After migrate.Starts the machine may be moved once ready has been called, from
	// any goroutine; ready is nil for the other kinds.
	Handle func(ctx context.Context, ev migrate.Event, ready func())
}

// Find returns where vmtoolsd is on this machine, "" if it is not there.
func Find() string {
	path, err := exec.LookPath("vmtoolsd")
	if err != nil {
		return ""
	}
	return path
}

// Run watches for moves of this machine until ctx ends.
func Run(ctx context.Context, cfg Config) {
	w := &watcher{cfg: cfg, quiet: make(chan string), kept: token{path: cfg.Token},
		look: looker{toolbox: filepath.Join(filepath.Dir(cfg.Path), "vmware-toolbox-cmd"), ids: make(chan string, 1)}}
	defer w.look.under.Wait()
	defer w.kept.release()
	timer := time.NewTimer(0)
	defer timer.Stop()
	w.look.begin(ctx, time.Now())
	id := <-w.look.ids
	w.handle(ctx, w.dialogue.Session(w.look.done(), id)) // from here on the session reveals moves
	for ctx.Err() == nil {
		if now := time.Now(); w.dialogue.WantsSession() && w.look.due(now) {
			w.look.begin(ctx, now)
		}
		command, wait, events := w.dialogue.Next(time.Now())
		w.handle(ctx, events)
		if command != "" {
			if !w.ask(ctx, command) {
				break
			}
			continue
		}
		if w.dialogue.WantsSession() {
			wait = min(wait, migrate.Idle)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case operation := <-w.quiet:
			if operation == w.announced { // or another move began meanwhile
				w.dialogue.Quiet(time.Now())
			}
		case id := <-w.look.ids:
			w.handle(ctx, w.dialogue.Session(w.look.done(), id))
		case <-ctx.Done():
		}
	}
	if bye := w.dialogue.Leave(); bye != "" {
		w.dialogue.Answer(time.Now(), call(context.WithoutCancel(ctx), cfg.Path, bye))
		w.kept.save(w.dialogue.Token())
	}
}

// watcher carries on the dialogue with vSphere.
type watcher struct {
	cfg       Config
	dialogue  migrate.Dialogue
	look      looker
	kept      token
	announced string      // the operation that was announced last
	quiet     chan string // brings the operation for which the ring is paused
}

// handle passes events on. A move begins when the handler is ready.
func (w *watcher) handle(ctx context.Context, events []migrate.Event) {
	for _, ev := range events {
		if ev.Kind != migrate.Starts {
			w.cfg.Handle(ctx, ev, nil)
			continue
		}
		w.announced = ev.Operation
		w.cfg.Handle(ctx, ev, func() {
			select {
			case w.quiet <- ev.Operation:
			case <-ctx.Done():
			}
		})
	}
}

// ask runs a command of the dialogue, unless something else comes before it. It returns false if ctx ended meanwhile,
// so that the answer may have been cut off.
func (w *watcher) ask(ctx context.Context, command string) bool {
	asking := ctx
	if w.dialogue.Registers() {
		may, events := mayRegister(&w.dialogue, &w.kept)
		if w.handle(ctx, events); !may {
			return true
		}
		asking = context.WithoutCancel(ctx) // a token that is not read is lost
	}
	text := call(asking, w.cfg.Path, command)
	if asking.Err() != nil {
		return false
	}
	events := w.dialogue.Answer(time.Now(), text)
	w.kept.save(w.dialogue.Token())
	w.handle(ctx, events)
	return true
}

// mayRegister returns false if something else comes first: ending a left-over registration, or another daemon's.
func mayRegister(d *migrate.Dialogue, kept *token) (bool, []migrate.Event) {
	former, err := kept.claim()
	if err != nil {
		return false, d.Refuse(time.Now(), err.Error())
	}
	if former != "" {
		d.Inherit(former)
	}
	return former == "", nil
}

// looker polls the session, one request at a time, concurrently with its caller, as a request may take long.
type looker struct {
	toolbox string
	ids     chan string // has room for the answer
	asked   time.Time   // when the last one began
	begun   bool        // and its answer was not taken
	under   sync.WaitGroup
}

// due reports whether it is time to poll again.
func (l *looker) due(now time.Time) bool { return !l.begun && now.Sub(l.asked) >= migrate.Idle }

// begin starts a request, whose answer arrives on ids.
func (l *looker) begin(ctx context.Context, now time.Time) {
	l.begun, l.asked = true, now
	l.under.Go(func() { l.ids <- session(ctx, l.toolbox) })
}

// done records that the answer was taken, and returns when it was requested.
func (l *looker) done() (asked time.Time) {
	l.begun = false
	return l.asked
}

// session returns the id of the guest's session, "" if unknown.
func session(ctx context.Context, toolbox string) string {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, toolbox, "stat", "sessionid")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil || len(out) > 256 {
		return ""
	}
	return string(out)
}

// call has vmtoolsd send a command and returns its output, from either stream: failures come on standard error. The
// command goes to standard input, since it may hold the token, and all users of the machine see arguments.
func call(ctx context.Context, path, command string) string {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var said answer
	cmd := exec.CommandContext(ctx, path, "--cmdfile", "/dev/stdin")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(command), &said, &said
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil && said.Len() == 0 {
		return err.Error()
	}
	return said.String()
}

// answer keeps the beginning of what is written to it.
type answer struct{ strings.Builder }

func (a *answer) Write(b []byte) (int, error) {
	a.Builder.Write(b[:min(len(b), maxAnswer-a.Len())])
	return len(b), nil
}
