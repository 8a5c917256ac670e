package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/launcher/failure"
	"gorun/launcher/launchers"
	"gorun/launcher/metrics"
	"gorun/launcher/plan"
	"gorun/rendezvous/audit"
	"gorun/rendezvous/standing"
	"gorun/topology"
	"gorun/topology/probe"
	"gorun/worker"
	"gorun/worker/command"
	"gorun/worker/proc"
)

// serveFlags are the flags of a resident daemon.
type serveFlags struct {
	invocation
	keyFile       string
	join          cli.StringSlice
	listen        string
	address, name string
	slots         int
	audit         string
	metrics       string
	drainStatus   int
	encrypt       bool
	rdma          bool
	rdmaLibrary   string
	user          string
	allowRoot     bool
}

func (o *serveFlags) table() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "cluster-key-file", Destination: &o.keyFile,
			Usage: "take jobs from launchers that hold the key in `FILE`"},
		&cli.StringSliceFlag{Name: "join", Destination: &o.join,
			Usage: "join the cluster that has a daemon at `HOST[:PORT]`, or at the addresses of dns:HOST, which may change; may be given more than once"},
		&cli.StringFlag{Name: "listen", Destination: &o.listen, Value: ":" + clusterPort,
			Usage: "take jobs at `ADDRESS:PORT`; gossip uses the next port"},
		&cli.StringFlag{Name: "address", Destination: &o.address,
			Usage: "the others reach this host at `ADDRESS`", DefaultText: "the address that reaches --join"},
		&cli.StringFlag{Name: "name", Destination: &o.name,
			Usage: "`NAME` of this host, for users", DefaultText: "its host name"},
		&cli.IntFlag{Name: "slots", Destination: &o.slots, Usage: "run `N` ranks at a time", DefaultText: "one for each CPU"},
		&cli.PathFlag{Name: "audit", Destination: &o.audit,
			Usage: "log what launchers ask for into `FILE`", DefaultText: "audit/NAME-PORT.log in gorun's state directory"},
		&cli.StringFlag{Name: "metrics", Destination: &o.metrics,
			Usage: "serve metrics for Prometheus at `[HOST]:PORT`, to this machine alone without HOST"},
		&cli.IntFlag{Name: "drain-status", Destination: &o.drainStatus,
			Usage: "end with status `N` after a drain (TERM), for schedulers that start again only what failed, such as a Job of Kubernetes"},
		&cli.BoolFlag{Name: "require-encrypt", Destination: &o.encrypt,
			Usage: "refuse jobs without --encrypt; launchers of the cluster then encrypt by themselves"},
		&cli.StringFlag{Name: "user", Destination: &o.user,
			Usage: "when root has read the key, become user `NAME`, as whom jobs run: then they cannot read it"},
		&cli.BoolFlag{Name: "allow-root", Destination: &o.allowRoot, EnvVars: []string{"GORUN_ALLOW_ROOT"},
			Usage: "stay root, as whom jobs then run"},
		&cli.BoolFlag{Name: "rdma", Destination: &o.rdma,
			Usage: "load libibverbs if this host has it, so that jobs with --rdma go over RDMA"},
		&cli.StringFlag{Name: "rdma-library", Destination: &o.rdmaLibrary, Hidden: true, Usage: "load `FILE` instead"},
	}
}

// post is a resident daemon as the flags describe it.
type post struct {
	key           standing.Key
	name          string
	slots         int
	bind, address string // where it listens, and where others reach it
	port          int    // for jobs; gossip uses the next one
	join          []string
	names         []string // that lead to the addresses of other daemons, with the port of their gossip
}

func readPost(o *serveFlags) (p post, err error) {
	if p.key, err = readKey(o.keyFile); err != nil {
		return p, err
	}
	if err := o.dropRoot(); err != nil {
		return p, err
	}
	if p.slots = o.slots; !o.given(&o.slots) {
		p.slots = cmp.Or(max(probe.CPUs("/"), 0), runtime.NumCPU())
	}
	if p.slots < 1 {
		return p, &usageError{fmt.Errorf("--slots %d: must be at least 1", p.slots), ""}
	}
	if p.name = o.name; p.name == "" {
		if p.name, err = os.Hostname(); err != nil {
			return p, fmt.Errorf("find host name: %w", err)
		}
	}
	var port string
	if p.bind, port, err = net.SplitHostPort(withPort(o.listen, clusterPort)); err != nil {
		return p, &usageError{fmt.Errorf("--listen: %w", err), "--listen :" + clusterPort}
	}
	if p.port, err = strconv.Atoi(port); err != nil || p.port < 1 || p.port > 65534 {
		return p, &usageError{fmt.Errorf("--listen %s: no port", o.listen), "--listen :" + clusterPort}
	}
	if o.drainStatus < 0 || o.drainStatus > 255 {
		return p, &usageError{fmt.Errorf("--drain-status %d: must be 0 to 255", o.drainStatus), "--drain-status 143, as of a program that TERM ended"}
	}
	for _, other := range o.join.Value() {
		name, lookUp := strings.CutPrefix(other, "dns:")
		gossip, ok := gossipOf(name, port)
		switch {
		case !ok:
			return p, &usageError{fmt.Errorf("--join %s: neither HOST nor HOST:PORT", other), "--join host1"}
		case lookUp:
			p.names = append(p.names, gossip)
		default:
			p.join = append(p.join, gossip)
		}
	}
	if p.address = o.address; p.address == "" {
		p.address = ownAddress(p.bind, slices.Concat(p.join, p.names))
	}
	return p, nil
}

// dropRoot makes a daemon that root has started a process of --user, and hides its memory, which has the key, from the other
// processes of that user.
func (o *serveFlags) dropRoot() error {
	if o.user != "" {
		if err := become(o.user); err != nil {
			return &usageError{fmt.Errorf("--user %s: %w", o.user, err), "root starts the daemon, and `id NAME` shows the user"}
		}
	}
	if os.Geteuid() == 0 && !o.allowRoot {
		return &usageError{errors.New("as root the daemon would run every job as root"), "--user NAME, or --allow-root to run jobs as root"}
	}
	return hide()
}

// gossipOf returns where the daemon that a --join names gossips: at the port after its own. port is its own if the
// --join has none.
func gossipOf(member, port string) (gossip string, ok bool) {
	host, given, err := net.SplitHostPort(withPort(member, port))
	number, bad := strconv.Atoi(given)
	_, noIP := netip.ParseAddr(host)
	if err != nil || bad != nil || host == "" || number < 1 || number > 65534 || strings.Contains(host, ":") && noIP != nil {
		return "", false
	}
	return net.JoinHostPort(host, strconv.Itoa(number+1)), true
}

// lookUpTimeout is how long a name server may take to answer.
const lookUpTimeout = 3 * time.Second

// look looks up the names, and returns where the daemons gossip that they lead to now. A name may have no address yet.
func (p post) look(ctx context.Context) (gossip []string) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	for _, name := range p.names {
		host, port, _ := net.SplitHostPort(name)
		addrs, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		for _, addr := range addrs {
			gossip = append(gossip, net.JoinHostPort(addr.Unmap().String(), port))
		}
	}
	return gossip
}

// gossipBind is the address on which gossip listens.
func (p post) gossipBind() string {
	switch {
	case p.bind != "":
		return p.bind
	case strings.Contains(p.address, ":"):
		return "::"
	}
	return "0.0.0.0"
}

// serveCluster runs a resident daemon. On TERM it ends after its jobs; on a second one, at once.
func serveCluster(parent context.Context, o *serveFlags, hurry <-chan struct{}) error {
	p, err := readPost(o)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(parent, "tcp", net.JoinHostPort(p.bind, strconv.Itoa(p.port)))
	if err != nil {
		return cannotListen(p.port, err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if os.Geteuid() == 0 {
		log.Warn("runs as root, and so does every job of whoever has the key")
	} else if f, err := os.Open(o.keyFile); err == nil && o.user != "" {
		f.Close()
		log.Warn("jobs can read the key, because their user can: give the file to root, with mode 600", "file", o.keyFile)
	}
	status := systemd(os.Getenv("NOTIFY_SOCKET"))
	ctx, end := untilStopped(parent)
	defer end()
	defer logStop(ctx, log, status)()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // the heap is a few megabytes, and all hosts send at once when a job starts
	}
	proc.SlackenSelf()
	record, err := openAudit(o, p, log)
	if err != nil {
		return err
	}
	defer record.Close()
	daemon := []string{"gorun", "worker", "--resumable"}
	if o.rdma {
		daemon = slices.Insert(daemon, 2, command.WithRDMA+"="+o.rdmaLibrary)
	}
	launchers := launchers.Runner{
		Origin:   launchers.Origin{Addr: net.JoinHostPort(p.address, strconv.Itoa(p.port)), Name: p.name, Key: p.key.Text()},
		Client:   standing.Client{Key: p.key, Version: version},
		StateDir: stateDir, Env: daemonEnv, Log: log, Files: worker.Shipped{Env: daemonEnv},
	}
	if o.encrypt {
		launchers.Env = func() []string { return append(daemonEnv(), "GORUN_ENCRYPT=1") }
	}
	observe, closeMetrics, err := observeAt(o.metrics, p.name, launchers)
	if err != nil {
		return err
	}
	defer closeMetrics()
	err = standing.Serve(ctx, hurry, standing.Config{
		Key: p.key, Name: p.name, Version: version, Slots: p.slots, RequireEncrypt: o.encrypt, Listener: listener, Bind: p.gossipBind(), Address: p.address, Port: p.port + 1, Join: p.join, Look: p.look, Log: log,
		Command: func() *exec.Cmd {
			// The very same file, even if its name has gone to a newer build by now.
			return &exec.Cmd{Path: "/proc/self/exe", Args: slices.Clone(daemon), Env: daemonEnv()}
		},
		Audit:     record,
		Launchers: launchers,
		Failover:  launchers,
		Observe:   observe,
		Ready: func(gossip string) {
			log.Info("takes jobs", "at", listener.Addr(), "gossip", gossip, "name", p.name, "slots", p.slots)
			status.say(fmt.Sprintf("READY=1\nSTATUS=takes jobs at %s, %s", listener.Addr(), topology.Count(p.slots, "slot")))
		},
	})
	if err == nil && o.drainStatus != 0 && !errors.Is(context.Cause(ctx), standing.ErrLeave) {
		return command.ExitStatus(o.drainStatus)
	}
	return err
}

// cannotListen is the error of a daemon that cannot listen for jobs at its port.
func cannotListen(port int, err error) error {
	e := &failure.JobError{Why: fmt.Sprintf("listen for jobs: %v", err), Code: failure.ExitFailure}
	if errors.Is(err, syscall.EADDRINUSE) {
		e.Hint = fmt.Sprintf("ss -ltnp sport = :%d shows which process has the port; --listen takes another", port)
	}
	return e
}

// observeAt serves the metrics of the daemon at an address, none if it is "", from when observe is called.
func observeAt(address, name string, launchers launchers.Runner) (observe func(stats func() standing.Stats), closes func(), err error) {
	if address == "" {
		return nil, func() {}, nil
	}
	var now atomic.Pointer[func() standing.Stats]
	served, err := metrics.ServeDaemon(address, metrics.Daemon{Name: name, Version: version, Jobs: launchers.States, Stats: func() standing.Stats {
		if stats := now.Load(); stats != nil {
			return (*stats)()
		}
		return standing.Stats{}
	}})
	if err != nil {
		return nil, nil, &usageError{fmt.Errorf("--metrics %s: %w", address, err), "--metrics :9401"}
	}
	launchers.Log.Info("serves metrics", "at", served.Address())
	return func(stats func() standing.Stats) { now.Store(&stats) }, func() { served.Close() }, nil
}

// openAudit opens the audit log. A daemon whose state directory cannot be written does without one, unless it was named.
func openAudit(o *serveFlags, p post, log *slog.Logger) (*audit.Log, error) {
	path := o.audit
	if path == "" {
		dir, err := stateDir()
		if err != nil {
			log.Warn("there is no audit log", "err", err)
			return nil, nil
		}
		path = filepath.Join(dir, "audit", fmt.Sprintf("%s-%d.log", filepath.Base(p.name), p.port)) // hosts may share a home
	}
	record, err := audit.Open(path, p.name, func(err error) { log.Warn("audit", "err", err) })
	switch {
	case err != nil && o.audit != "":
		return nil, &usageError{err, "--audit takes the path of a file that this user can write"}
	case err != nil:
		log.Warn("there is no audit log", "err", err)
		return nil, nil
	}
	log.Info("audit", "file", path)
	return record, nil
}

// untilStopped returns a context that ends with parent, or when end is called. Its cause is standing.ErrLeave if a HUP
// ended parent.
func untilStopped(parent context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	unhook := context.AfterFunc(parent, func() {
		cause := context.Cause(parent)
		if s, ok := errors.AsType[signalError](cause); ok && s.sig == syscall.SIGHUP {
			cause = standing.ErrLeave
		}
		cancel(cause)
	})
	return ctx, func() { unhook(); cancel(nil) }
}

// logStop logs what the daemon does when ctx ends, unless done is called before.
func logStop(ctx context.Context, log *slog.Logger, status systemd) (done func() bool) {
	return context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), standing.ErrLeave) {
			status.say("STOPPING=1\nSTATUS=leaves its jobs to the next daemon")
			log.Info("leaves its jobs to the daemon that comes next")
			return
		}
		status.say("STOPPING=1\nSTATUS=waits for its jobs to end")
		log.Info("stops when its jobs have ended; at once on a second signal")
	})
}

// ownAddress returns the address at which others reach this host: on the route to the hosts that it joins, or else the
// first one that other hosts can use. A host that joins itself may know its name as 127.0.1.1, as on Debian.
func ownAddress(bind string, join []string) string {
	if bind != "" && !net.ParseIP(bind).IsUnspecified() {
		return bind
	}
	for _, other := range join {
		if conn, err := net.DialTimeout("udp", other, 2*time.Second); err == nil { // sends nothing
			local := conn.LocalAddr().(*net.UDPAddr).IP
			conn.Close()
			if !local.IsLoopback() {
				return local.String()
			}
		}
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, ok := a.(*net.IPNet); ok && p.IP.IsGlobalUnicast() {
			return p.IP.String()
		}
	}
	return "127.0.0.1"
}

// daemonEnv returns the environment of a job's daemon, without what systemd set for this process.
func daemonEnv() []string {
	systemd := []string{
		"NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "LISTEN_FDS", "LISTEN_PID",
		"WATCHDOG_USEC", "WATCHDOG_PID",
	}
	return slices.DeleteFunc(plan.UserEnv(os.Environ(), false), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(systemd, name)
	})
}

// systemd is the socket at which systemd receives the state of a service of Type=notify; "" without systemd.
type systemd string

func (s systemd) say(state string) {
	if s == "" {
		return
	}
	name := string(s)
	if strings.HasPrefix(name, "@") {
		name = "\x00" + name[1:]
	}
	if conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"}); err == nil {
		conn.Write([]byte(state))
		conn.Close()
	}
}
