package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"gorun/rendezvous/standing"
	"gorun/topology"
	"gorun/worker/proc"
)

// serveFlags are those of a daemon that stays.
func serveFlags() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "cluster-key-file", Usage: "take jobs from launchers that hold the key in `FILE`"},
		&cli.StringSliceFlag{Name: "join", Usage: "`HOST[:PORT]` of another daemon of the cluster, may be given more than once"},
		&cli.StringFlag{Name: "listen", Value: ":" + clusterPort, Usage: "`ADDRESS:PORT` to take jobs at; gossip uses the next port"},
		&cli.StringFlag{Name: "address", Usage: "where the others find this host", DefaultText: "that of the way to --join"},
		&cli.StringFlag{Name: "name", Usage: "of this host", DefaultText: "its host name"},
		&cli.IntFlag{Name: "slots", Usage: "`N` ranks at a time", DefaultText: "one for each CPU"},
	}
}

// serveCluster is the daemon that outlives jobs. It ends in order on TERM, after its jobs; at once on a second.
func serveCluster(c *cli.Context, hurry <-chan struct{}) error {
	key, err := readKey(c.Path("cluster-key-file"))
	if err != nil {
		return err
	}
	keyFile, err := filepath.Abs(c.Path("cluster-key-file"))
	if err != nil {
		return fmt.Errorf("find key file: %w", err)
	}
	slots := c.Int("slots")
	if !c.IsSet("slots") {
		slots = runtime.NumCPU()
	}
	if slots < 1 {
		return &usageError{fmt.Errorf("--slots %d: must be at least 1", slots), ""}
	}
	name := c.String("name")
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return fmt.Errorf("find host name: %w", err)
		}
	}
	bind, port, err := net.SplitHostPort(withPort(c.String("listen"), clusterPort))
	if err != nil {
		return &usageError{fmt.Errorf("--listen: %w", err), "--listen :" + clusterPort}
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65534 {
		return &usageError{fmt.Errorf("--listen %s: no port", c.String("listen")), "--listen :" + clusterPort}
	}
	var join []string
	for _, other := range c.StringSlice("join") {
		host, p, err := net.SplitHostPort(withPort(other, port))
		theirs, bad := strconv.Atoi(p)
		if err := errors.Join(err, bad); err != nil {
			return &usageError{fmt.Errorf("--join %s: %w", other, err), "--join host1"}
		}
		join = append(join, net.JoinHostPort(host, strconv.Itoa(theirs+1)))
	}
	address := c.String("address")
	if address == "" {
		address = ownAddress(bind, join)
	}
	listener, err := (&net.ListenConfig{}).Listen(c.Context, "tcp", net.JoinHostPort(bind, port))
	if err != nil {
		return fmt.Errorf("listen for jobs: %w", err)
	}
	if bind == "" {
		bind = "0.0.0.0"
		if strings.Contains(address, ":") {
			bind = "::"
		}
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	status := systemd(os.Getenv("NOTIFY_SOCKET"))
	ctx, end := context.WithCancelCause(context.WithoutCancel(c.Context))
	defer end(nil)
	defer context.AfterFunc(c.Context, func() {
		cause := context.Cause(c.Context)
		var s signalError
		if errors.As(cause, &s) && s.sig == syscall.SIGHUP {
			cause = standing.ErrLeave
		}
		end(cause)
	})()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), standing.ErrLeave) {
				status.say("STOPPING=1\nSTATUS=leaves its jobs to the next daemon")
				log.Info("leaves its jobs to the daemon that comes next")
				return
			}
			status.say("STOPPING=1\nSTATUS=waits for its jobs to end")
			log.Info("stops when its jobs have ended; at once if told again")
		case <-stop:
		}
	}()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // the heap is some megabytes, and every host tells of itself at once when a job begins
	}
	proc.SlackenSelf()
	launchers := hosted{hosting{addr: net.JoinHostPort(address, port), name: name, keyFile: keyFile}, log}
	return standing.Serve(ctx, hurry, standing.Config{
		Key: key, Name: name, Version: version, Slots: slots, Listener: listener, Bind: bind, Address: address, Port: n + 1, Join: join, Log: log,
		Command: func() *exec.Cmd {
			// The very same file, even if its name has gone to a newer build by now.
			return &exec.Cmd{Path: "/proc/self/exe", Args: []string{"gorun", "worker", "--resumable"}, Env: jobEnv()}
		},
		Launchers: launchers,
		Heirs:     launchers,
		Ready: func(gossip string) {
			log.Info("takes jobs", "at", listener.Addr(), "gossip", gossip, "name", name, "slots", slots)
			status.say(fmt.Sprintf("READY=1\nSTATUS=takes jobs at %s, %s", listener.Addr(), topology.Count(slots, "slot")))
		},
	})
}

// ownAddress is where others reach this host: on the way to those it joins, or else the first that is not
// its own alone.
func ownAddress(bind string, join []string) string {
	if bind != "" && !net.ParseIP(bind).IsUnspecified() {
		return bind
	}
	for _, other := range join {
		if conn, err := net.DialTimeout("udp", other, 2*time.Second); err == nil { // sends nothing
			defer conn.Close()
			return conn.LocalAddr().(*net.UDPAddr).IP.String()
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

// systemd is the socket at which systemd hears of a service of Type=notify; "" for nobody.
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
