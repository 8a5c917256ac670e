//go:build linux

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/launcher/discover"
	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/hosts"
	"gorun/launcher/plan"
	"gorun/launcher/ssh"
	"gorun/launcher/stall"
	"gorun/rendezvous/wire"
)

// trouble is an end of a job that docs/troubleshooting.md explains. What gorun prints comes from the error itself.
type trouble struct {
	err           error
	means, remedy string
}

// troubles have each type of error that knows its exit code, in each of its forms.
var troubles = []trouble{
	{&failure.RankError{Rank: 3, Host: "host2", Code: 1, Tail: []string{"Traceback (most recent call last):", "ValueError: bad batch"}},
		"A rank ended with an error, and the job with it. It is the first that failed; the others were stopped because of it. The lines are the last that it wrote to standard error.",
		"Look for the cause in its output: `gorun logs N` shows the end of it for a day, where N is from `gorun ps`. `--output-filename DIR` keeps all of it, `--max-restarts N` starts all again, and elastic jobs go on without it."},
	{&failure.RankError{Rank: 1, Host: "host2", Code: 1, File: "/usr/bin/python3", Tail: []string{"ModuleNotFoundError: No module named 'torch'"}},
		"A rank's Python has no such module. Hosts may find different Pythons by one name, each with modules of its own.",
		"Install the module for that Python, or make the same environment on all hosts and activate it before `gorun`."},
	{&failure.RankError{Rank: 3, Host: "host2", Code: 137, Signal: 9},
		"A signal killed a rank. Signal 9 is often the kernel, which ran out of memory; signal 11 is a fault in native code.",
		"`dmesg` on the host shows the out-of-memory killer. Fewer ranks on a host or smaller batches need less memory."},
	{&failure.RankError{Rank: 3, Host: "host2", Code: 137, Signal: 9, Memory: true},
		"The kernel ended a rank because the control group in which it ran has a limit of memory and reached it. A container, a scheduler or a unit of systemd sets such limits.",
		"Raise the limit (`memory.max`), or use less: smaller batches, fewer workers of data loaders, fewer ranks on a host."},
	{&failure.RankError{Rank: 0, Host: "host1", Code: 127, Reason: "train: not found in PATH (/usr/bin:/bin)"},
		"The program is not on the host. gorun copies itself there, but no programs and no data.",
		"Install the program on each host at the same path, or use a file system that all hosts have. Ranks get the launcher's `PATH`."},
	{&failure.RankError{Rank: 0, Host: "host1", Code: 126, Reason: "/home/me/train.py: permission denied"},
		"The file is there, but cannot be executed.", "`chmod +x` it, or name its interpreter."},
	{&failure.RankError{Rank: 1, Host: "host2", Code: 126, Reason: "/nfs/train: its file system has not answered for 20s"},
		"The program, its directory or one of PATH is on a file system whose server does not answer.", "Bring the server back, or unmount it with `umount -l`."},
	{&failure.RankError{Rank: 1, Host: "host2", Code: 127, Reason: "python3: /home/me/venv is active where gorun runs, and not there on this host: /usr/bin/python3 would take its place"},
		"A virtual environment, or one of conda, comes first in PATH, and the host has none at that path, or one without its Python. The ranks there would run on another Python.",
		"Make it on all hosts, or name a Python that they all have by its path."},
	{&failure.RankError{Rank: 0, Host: "host1", Code: 126, Reason: "/usr/bin/python3: argument list too long"},
		"Linux gives a program at most a quarter of its stack limit, 2 MiB mostly, for its arguments and variables. Ranks have those of the launcher, and some KiB more.",
		"Pass on less with `--env-none` and `-x`, or raise the limit with `ulimit -s`."},
	{&failure.RankError{Rank: 1, Host: "host1", Code: 1, Alone: "Open MPI"},
		"An MPI program looked for an MPI launcher that it knows, found none, and ran as a job of one rank. So each rank would have computed everything.",
		"Programs of MPICH and Intel MPI find gorun by PMI. Programs of Open MPI are started by its own `mpirun`, with gorun as its agent."},
	{&failure.RankError{Rank: 1, Host: "host1", Code: 1, Alone: "gorun"},
		"A rank used Horovod's operations without gorun's variables, as behind `env -i`, and so in a world of one. `its Horovod` is an installed one.",
		"Have whatever is around the program keep the variables, `PYTHONPATH` among them."},
	{&failure.RankError{Rank: 1, Host: "host1", Code: 1, Unfinished: true},
		"An MPI program called MPI_Init and ended without MPI_Finalize.", "Its other ranks would wait for ever. Mend the program, or end it by MPI_Abort."},
	{&failure.HostErrors{Hosts: 2, Failed: []*failure.HostError{
		{Host: "host1", Step: "connect", Err: errors.New("connection refused"), Code: failure.ExitTransport, Hint: "is sshd running there, and on port 22?"},
		{Host: "host2", Step: "authenticate", Err: errors.New("no key is accepted")}}},
		"The job could not start on some hosts. Each line names a host, how far it got, and why. The table of steps below says what to look at.",
		"`gorun doctor -H host1,host2` checks the hosts. `--connect-retry TIME` waits for hosts that are booting."},
	{&failure.HostError{Host: "host2", Step: "join", Err: errors.New("/usr/bin/python3 has torch 1.13, and on host1 /usr/bin/python3 has 2.4"), Code: failure.ExitUsage,
		Hint: "install the same on all hosts, or name a Python that they all have by its path; --strict=false starts the job anyway"},
		"What the program's name means is another Python on that host, or one with another torch, TensorFlow or JAX: the first two numbers of a version differ.",
		"Another path and a third number are no difference. `-x PATH=…` is not looked at."},
	{&failure.HostError{Host: "host2", Step: "run", Err: errors.New("silent for 30 s"), Code: failure.ExitTransport},
		"A host was lost while the job ran: it was silent for the time of `--lease`, or its daemon ended.",
		"Look at the host and its network. With `--min-np N` a job goes on without a lost host; a longer `--lease` waits longer for one that comes back."},
	{&failure.TimeoutError{After: time.Hour, States: []string{`rank 3 on host2: has not called allreduce "loss", which others wait for`}},
		"The job took longer than `--timeout`. A line for each rank says what it was waiting for.",
		"If all ranks compute, give the job more time. If one has not called what others wait for, it took another way through the program, or hangs."},
	{&failure.ElasticError{Cause: elastic.TooFew, Why: "too few slots: 4 needed, 2 can be used"},
		"An elastic job had fewer slots than `--min-np` for the time of `--elastic-timeout`, or those that are left failed too often.",
		"Lower `--min-np`, add hosts, or let gorun use failed slots again."},
	{&failure.ElasticError{Cause: elastic.TooManyResets, Why: "the reset limit of 3 is reached: rank 1 on host1 exited with status 1"},
		"An elastic job began anew as often as `--reset-limit` allows.", "The reason behind the colon is the last one. Find out why ranks fail."},
	{&failure.IsolatedError{Hosts: 4, Since: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), Limit: 35 * time.Second},
		"The launcher's machine lost its network. The hosts end a job whose launcher they do not hear for 5 s longer than the time of `--lease`, which is 30 s by default.",
		"Start long jobs with `--detach` in a cluster, where another host carries on the launcher's work."},
	{&failure.IsolatedError{Hosts: 4, Stopped: 45 * time.Second, Limit: 35 * time.Second},
		"The launcher, or its whole machine, was paused for longer than the hosts wait for it: it slept or was suspended.",
		"Run the launcher on a machine that does not sleep. Ctrl-Z pauses ranks too, and harms nothing."},
	{&failure.MinorityError{Of: 3, Left: 1},
		"Several hosts of a cluster elect the launcher of a detached job. Too few of them are left.", "A cluster of five hosts or more survives the loss of two."},
	{&plan.SlotsError{NP: 8, Slots: 4, Hosts: []hosts.ListedHost{{Name: "host1", Slots: 2}, {Name: "host2", Slots: 2}}},
		"More ranks are asked for than the hosts have slots.", "Give the hosts more slots, start fewer ranks, or add `--oversubscribe`."},
	{&discover.Error{Command: "./hosts.sh", Err: errors.New("exit status 1")},
		"The command of `--host-discovery-script` failed before the job knew any host.", "Run it by hand: `sh -c './hosts.sh'`. Later failures are notes, and the job keeps the hosts that it has."},
	{signalError{syscall.SIGTERM},
		"The launcher was stopped from outside: Ctrl-C (SIGINT), `kill` or `gorun stop` (SIGTERM), or a terminal that was closed (SIGHUP).",
		"`--detach` starts a job that outlives the terminal."},
	{&usageError{errors.New("--grace -1s: must not be negative"), "gorun help time"},
		"The command line is wrong, and nothing was started.", "The tables at the end of this page have each of these messages."},
	{&listenError{7575, syscall.EADDRINUSE},
		"Another process has the port of the resident daemon, most likely another daemon.",
		"The hint shows which. A [second cluster](guides/clusters.md#a-second-cluster-on-the-same-machines) takes another port by `--listen`."},
}

// step is how far a host got before it failed.
type step struct{ name, means, remedy string }

// steps are the middle of `HOST: STEP: reason`.
var steps = []step{
	{string(ssh.StepConfig), "`ssh` refuses its configuration, or gorun cannot obey it", "`ssh -G HOST` shows it; `--ssh-command ssh` [obeys all of it](reference/ssh-config.md); `--ssh-config none` reads none"},
	{string(ssh.StepResolve), "the host's name is not known", "check the name, or give its address; `--connect-retry` waits for names of machines that are starting"},
	{string(ssh.StepConnect), "no TCP connection: the host is down, a firewall drops packets, or nothing listens", "try `ssh HOST true`; check port and sshd. With `--cluster`: is there a daemon (`gorun worker`)?"},
	{string(ssh.StepHandshake), "something answers that does not speak ssh as expected", "is it an sshd? Old ones may lack all ciphers that are still safe"},
	{string(ssh.StepHostKey), "the host's key is not the one in known_hosts, or was revoked", "if the host was installed anew, remove the old key: `ssh-keygen -R HOST`"},
	{string(ssh.StepAuthenticate), "no key was accepted, or with `--cluster` the cluster's key is another one", "`ssh-add -l` lists keys of the agent, `-i FILE` names one; the key file of a cluster must be the same everywhere"},
	{string(ssh.StepOpenChannel), "the login works, but sshd allows no session", "look at `MaxSessions` and `ForceCommand` in sshd's configuration"},
	{"start step", "the scheduler did not start the daemons of the job on its nodes, or one of them ended before it was reached", "what the command says (`srun: error: …`) comes first; `--launcher ssh` does without it"},
	{string(ssh.StepUpload), "gorun could not put its program on the host", "free space in `~/.cache`, or set `XDG_CACHE_HOME` on the host to a directory that is not mounted noexec"},
	{string(ssh.StepStart), "the program is there and did not start", "try `ssh HOST true`: login files that print or wait are the most frequent cause"},
	{"start daemon", "the daemon started and gave up: the reason says what it lacks, such as a NIC, CPUs, or limits of processes and files", "`gorun doctor -H HOST` checks this"},
	{"connect hosts", "the daemons could not reach each other", "open the ports between the hosts, or choose other NICs with `--network-interfaces`"},
	{"start ranks", "its ranks did not run in time", "give the start more time with `--start-timeout`; programs on a slow file system take long to begin"},
	{"join", "the host did not take part in the world: it was not heard in time, or has another version", "run the same gorun on all hosts; check the network between them"},
	{"run", "the host was lost, or its daemon failed, while ranks ran", "look at the host, and at the last lines of its daemon with `-v`"},
	{"start job", "the launcher of a detached job ended before its ranks ran", "`dmesg` shows whether memory ran out"},
	{"reserve slots", "the cluster did not give the slots: it has too few, drains, or its daemons have another version than this gorun", "`gorun ps --cluster HOST` shows what its hosts do; install the same version everywhere"},
	{"probe", "the host could not be examined", "`ssh HOST true` must work; then try `gorun topo` on the host itself"},
	{"measure", "a measurement between hosts failed", "open the ports between the hosts"},
	{"measure the path to ", "a measurement to the named host failed", "open the ports between the hosts"},
}

// stallTroubles are the lines about operations that wait.
func stallTroubles() []trouble {
	at := time.Unix(0, 0)
	op := func(over bool) stall.Answers {
		return stall.Answers{Hosts: []string{"host1", "host2"}, By: map[int]*wire.Stalled{
			0: {Ops: []wire.Waiting{{Kind: "allreduce", Name: "gradient", AgeMS: 60000, Late: true, Over: over, Missing: []wire.Missing{{Host: "host2", Ranks: []int{2}}}}}},
			1: {Ops: []wire.Waiting{{Kind: "allreduce", Name: "gradient", AgeMS: 60000, Late: true, Missing: []wire.Missing{{Host: "host2", Ranks: []int{2}}}}}},
		}}
	}
	crossed := func() stall.Answers {
		one := []wire.Waiting{
			{Kind: "allreduce", Name: "allreduce.x", AgeMS: 60000, Late: true, Missing: []wire.Missing{{Host: "host2", Ranks: []int{1}}}},
			{Kind: "broadcast", Name: "broadcast.x", AgeMS: 60000, Late: true, Missing: []wire.Missing{{Host: "host1", Ranks: []int{0}}}},
		}
		return stall.Answers{Hosts: []string{"host1", "host2"}, By: map[int]*wire.Stalled{0: {Ops: one}, 1: {Ops: one}}}
	}
	line := func(r *stall.Reports, a stall.Answers) error {
		lines, _ := r.Judge(at, a)
		return errors.New("gorun: stall: " + strings.Join(lines, "\ngorun: stall: "))
	}
	var waits, over stall.Reports
	first := line(&waits, op(false))
	return []trouble{
		{first, "Some ranks called an operation a minute ago, and others have not called it yet. `HOROVOD_STALL_CHECK_TIME_SECONDS` sets the time.",
			"`gorun why` says what the named ranks do: they may load data, write a checkpoint, have taken another branch of the program, or hang. The job goes on when they call it. `flight.jsonl`, which the launcher names, has what led to it: [Recordings](reference/recordings.md)."},
		{line(&waits, stall.Answers{Hosts: []string{"host1", "host2"}}), "The operation has ended.", "There is nothing to do. If it happens often, some ranks are slower than others."},
		{line(&over, op(true)), "The operation waited longer than `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS`. It fails on all ranks with this text.", "Look for the cause as for the first line. With 0 seconds operations wait for ever."},
		{line(new(stall.Reports), crossed()), "Ranks use one name for different operations, so each waits for the other.", "Give operations names of their own, and let all ranks call the same ones."},
	}
}

// troubleshootingPage is docs/troubleshooting.md.
func troubleshootingPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Troubleshooting\n\nAn error has one line that begins with `gorun: error:`, sometimes lines with details, and a line `gorun: hint:` with the next step. Search\n" +
		"this page for words of it. [Exit status](reference/exit-status.md) has the codes. `gorun doctor -H host1,host2` checks hosts before there is a\n" +
		"job, `-v` shows what happens, and `gorun help TOPIC` explains flags.\n\n## How jobs end\n")
	for _, x := range troubles {
		var said strings.Builder
		code := explain(&said, x.err)
		fmt.Fprintf(&b, "\n```text\n%s```\n\n%s %s Exit status %d.\n", said.String(), x.means, x.remedy, code)
	}
	b.WriteString("\n## Hosts that cannot take part\n\nThe line is `gorun: error: HOST: STEP: reason`. The step says how far gorun got.\n\n| step | means | what to do |\n|---|---|---|\n")
	for _, s := range steps {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.TrimSpace(s.name), s.means, s.remedy)
	}
	b.WriteString("\n## Operations that wait\n\nA collective operation starts when all ranks have called it. gorun reports operations that wait for a long time, and for which ranks.\n")
	for _, x := range stallTroubles() {
		fmt.Fprintf(&b, "\n```text\n%s\n```\n\n%s %s\n", x.err, x.means, x.remedy)
	}
	b.WriteString(refusalTables(t))
	return b.String() + written
}

// mistakes are the messages of usageErrors that are made of literals, with … for what was given.
func mistakes(t *testing.T) (messages []string) {
	t.Helper()
	for _, file := range parsed(t, "cmd/gorun", false) {
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || len(lit.Elts) != 2 {
				return true
			}
			if id, ok := lit.Type.(*ast.Ident); !ok || id.Name != "usageError" {
				return true
			}
			call, ok := lit.Elts[0].(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			if message := strings.Join(literalsIn(call.Args[0]), ""); patternOf(message) != nil { // it has words of its own
				messages = append(messages, strings.ReplaceAll(verb.ReplaceAllString(message, "…"), "%%", "%"))
			}
			return true
		})
	}
	slices.Sort(messages)
	return slices.Compact(messages)
}

// TestTroublesAreComplete: each type of error with an exit code, and each step of a host, has an entry.
func TestTroublesAreComplete(t *testing.T) {
	explained := map[string]bool{}
	for _, x := range troubles {
		typ := reflect.TypeOf(x.err)
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		explained[typ.PkgPath()+"."+typ.Name()] = true
		if x.means == "" || x.remedy == "" {
			t.Errorf("%v: %v has no meaning or remedy", typ, x.err)
		}
	}
	found, named := map[string]bool{}, map[string]bool{}
	for _, root := range []string{"cmd", "launcher", "rendezvous", "worker", "topology", "collective"} {
		eachDir(t, filepath.Join("../..", root), func(dir string) {
			dir = strings.TrimPrefix(dir, "../../")
			for _, file := range parsed(t, dir, false) {
				for _, d := range file.Decls {
					if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "ExitCode" {
						found[dir+"."+receiver(f)] = true
					}
				}
				for _, text := range stepsIn(file) {
					named[text] = true
				}
			}
		})
	}
	if len(found) < 8 || len(named) < 12 {
		t.Errorf("found %d types and %d steps only: this test looks in the wrong places", len(found), len(named))
	}
	for _, typ := range slices.Sorted(maps.Keys(found)) {
		if name := "gorun/" + typ; !explained[name] {
			t.Errorf("%s knows its exit code, but docs/troubleshooting.md does not explain it: add it to troubles", typ)
		}
	}
	for text := range named {
		if !slices.ContainsFunc(steps, func(s step) bool { return s.name == text }) {
			t.Errorf("hosts fail at step %q, which docs/troubleshooting.md does not explain: add it to steps", text)
		}
	}
}

func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return typ.(*ast.Ident).Name
}

// stepsIn returns the literals that are a Step, of an error or of a constant.
func stepsIn(file *ast.File) (out []string) {
	add := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, _ := strconv.Unquote(l.Value)
			out = append(out, text)
		}
		if b, ok := e.(*ast.BinaryExpr); ok {
			out = append(out, literalsIn(b.X)...)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok && id.Name == "Step" {
				add(n.Value)
			}
		case *ast.AssignStmt:
			if to, ok := n.Lhs[0].(*ast.SelectorExpr); ok && to.Sel.Name == "Step" {
				add(n.Rhs[0])
			}
		case *ast.ValueSpec:
			if id, ok := n.Type.(*ast.Ident); ok && id.Name == "Step" && len(n.Values) == 1 {
				add(n.Values[0])
			}
		}
		return true
	})
	return out
}
