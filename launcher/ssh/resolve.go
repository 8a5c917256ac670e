package ssh

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// inOrder is no keyword.
const inOrder = "hostkeyalgorithms in order" // by a file, so that known_hosts does not change it

// target is a host with what the user asks for outside ssh_config.
type target struct {
	alias, user string
	port        int
}

// values are what ssh_config has for a host, by keyword in lower case, in the words of `ssh -G`.
type values map[string][]string

func (v values) first(keyword string) string {
	if said := v[keyword]; len(said) > 0 {
		return said[0]
	}
	return ""
}

func (v values) says(keyword string) bool {
	return v.first(keyword) == "yes" || v.first(keyword) == "true"
}

// resolver has OpenSSH read ssh_config, once for all hosts that the files do not distinguish.
type resolver struct {
	cfg     Config
	program string        // OpenSSH's client; "" = this machine has none
	busy    chan struct{} // holds an element for each program that runs

	mu      sync.Mutex
	files   *files // nil until there is an answer
	answers map[string]*answer
}

// answer holds the values of one host, which others share. The first host that needs them asks, the others wait for
// ready.
type answer struct {
	of     target
	ready  chan struct{}
	values values
	err    error
	lost   bool // the caller that asked was canceled
}

func newResolver(cfg Config) *resolver {
	r := &resolver{cfg: cfg, busy: make(chan struct{}, 8), answers: map[string]*answer{}}
	r.program, _ = exec.LookPath("ssh")
	return r
}

// lookup returns the values for a host. The caller does not change them.
func (r *resolver) lookup(ctx context.Context, t target) (values, error) {
	for {
		r.mu.Lock()
		files, key := r.files, r.files.key(t)
		a := r.answers[key]
		if a == nil {
			a = &answer{of: t, ready: make(chan struct{})}
			r.answers[key] = a
			r.mu.Unlock()
			r.answer(ctx, a, key)
			return a.values, a.err
		}
		r.mu.Unlock()
		select {
		case <-a.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if files != nil && !a.lost {
			return a.values.of(a.of, t), a.err
		}
	}
}

// answer asks for others, too. An answer that its host does not get is asked for again by one of them.
func (r *resolver) answer(ctx context.Context, a *answer, key string) {
	defer close(a.ready)
	var read *files
	a.values, read, a.err = r.ask(ctx, a.of)
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.lost = ctx.Err() != nil; a.lost {
		delete(r.answers, key)
	} else if r.files == nil {
		r.files = cmp.Or(read, &files{apart: true})
		r.answers[r.files.key(a.of)] = a
	}
}

// of returns the values for another host that no file distinguishes from the first.
func (v values) of(first, t target) values {
	if t == first || v == nil {
		return v
	}
	v = maps.Clone(v)
	if v.first("hostname") == strings.ToLower(first.alias) {
		v["hostname"] = []string{strings.ToLower(t.alias)}
	}
	return v
}

func (r *resolver) ask(ctx context.Context, t target) (values, *files, error) {
	if r.program == "" {
		v, err := r.readWithoutSSH(t)
		return v, &files{apart: true}, err
	}
	v, read, err := r.run(ctx, t)
	if err != nil || len(r.cfg.Command) > 0 {
		return v, read, err
	}
	if v.first("stricthostkeychecking") == "ask" && !read.asks {
		v["stricthostkeychecking"] = []string{"accept-new"}
	}
	kept := func(list string) bool {
		return strings.ContainsAny(list, "*?") || strings.HasPrefix(v.first("hostkeyalgorithms")+",", strings.Split(list, ",")[0]+",")
	}
	if slices.ContainsFunc(read.orders, kept) {
		v[inOrder] = []string{"yes"}
	}
	if read.blanks != "" || strings.Contains(r.cfg.Home, " ") {
		return v, read, needsSystem(cmp.Or(read.blanks, "userknownhostsfile"))
	}
	maps.DeleteFunc(v, func(keyword string, _ []string) bool { return classes[keyword] == unknown && !read.keywords[keyword] })
	return v, read, nil
}

// run asks OpenSSH about a host as for a command, which takes the place of RemoteCommand.
func (r *resolver) run(ctx context.Context, t target) (values, *files, error) {
	select {
	case r.busy <- struct{}{}:
		defer func() { <-r.busy }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	args := []string{"-G", "-T", "-o", "RemoteCommand=none"}
	if len(r.cfg.Command) == 0 {
		args = append(args, "-v") // which takes the place of LogLevel, and shows the files
	}
	if r.cfg.ConfigFile != "" {
		args = append(args, "-F", r.cfg.expandHome(r.cfg.ConfigFile))
	}
	if t.port != 0 {
		args = append(args, "-p", strconv.Itoa(t.port))
	}
	if t.user != "" {
		args = append(args, "-l", t.user)
	}
	out, said, err := runBound(exec.CommandContext(ctx, r.program, append(args, t.alias, "true")...))
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	read, why := readFiles(string(said))
	read.apart = read.apart || len(r.cfg.Command) > 0
	if err != nil {
		why = strings.ReplaceAll(why, r.cfg.Home+"/", "~/")
		err = fmt.Errorf("ssh refuses it: %s", cmp.Or(oneLine(why), err.Error()))
		return nil, read, &Error{Step: StepConfig, Err: err, Hint: "see: ssh -G " + t.alias}
	}
	v := values{}
	for line := range strings.Lines(string(out)) {
		keyword, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		keyword = strings.ToLower(keyword)
		keyword = cmp.Or(renamed[keyword], keyword)
		v[keyword] = append(v[keyword], value)
	}
	return v, read, nil
}
