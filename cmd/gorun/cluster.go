package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"gorun/launcher/failure"
	"gorun/rendezvous/standing"
)

// clusterPort is where resident daemons take jobs; their gossip uses the next port.
const clusterPort = "7575"

const keyHint = "make one with: (umask 077; head -c 32 /dev/urandom | base64 >FILE), and copy it to every host"

// clusterTable binds the fields of clusterFlags, given what the command does with the cluster.
func (o *clusterFlags) clusterTable(does string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cluster", Destination: &o.cluster, EnvVars: []string{"GORUN_CLUSTER"}, Usage: does},
		&cli.PathFlag{Name: "cluster-key-file", Destination: &o.keyFile, EnvVars: []string{"GORUN_CLUSTER_KEY_FILE"},
			Usage: "read the key of that cluster from `FILE`"},
	}
}

// clusterOf reads which cluster is meant.
func clusterOf(ctx context.Context, o *clusterFlags) (standing.Client, string, error) {
	if home, ok := detachedOf(ctx).Origin(); ok {
		key, err := standing.ParseKey(home.Key)
		return standing.Client{Key: key, Version: version}, home.Addr, err
	}
	if o.keyFile == "" {
		return standing.Client{}, "", &usageError{errors.New("--cluster needs --cluster-key-file"), keyHint}
	}
	key, err := readKey(o.keyFile)
	if err != nil {
		return standing.Client{}, "", err
	}
	again := func() (standing.Key, error) { return readKey(o.keyFile) }
	return standing.Client{Key: key, Version: version, Reread: again}, withPort(o.cluster, clusterPort), nil
}

// withPort adds a port to an address without one.
func withPort(addr, port string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	if inner, ok := strings.CutPrefix(addr, "["); ok && strings.HasSuffix(inner, "]") {
		addr = strings.TrimSuffix(inner, "]")
	}
	return net.JoinHostPort(addr, port)
}

// readKey reads a key file that only its owner can read.
func readKey(path string) (standing.Key, error) {
	fail := func(err error, hint string) (standing.Key, error) {
		return standing.Key{}, &usageError{fmt.Errorf("--cluster-key-file: %w", err), hint}
	}
	info, err := os.Stat(path)
	if err != nil {
		return fail(err, keyHint)
	}
	owner := os.Geteuid()
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(s.Uid)
	}
	if mode := info.Mode().Perm(); mode&private(owner, os.Geteuid()) != 0 {
		return fail(fmt.Errorf("%s: others can read it (mode %04o)", path, mode), "chmod 600 "+path)
	}
	text, err := readShort(path)
	if errors.Is(err, os.ErrPermission) {
		return fail(err, "give the file to the user that gorun runs as; in a pod of Kubernetes, set fsGroup")
	}
	if err != nil {
		return fail(err, "")
	}
	key, err := standing.ParseKey(text)
	if err != nil {
		return fail(fmt.Errorf("%s: %w", path, err), keyHint)
	}
	return key, nil
}

// private returns the bits that the mode of a key file must not have. Where root owns the file of another user, as in a
// pod of Kubernetes whose fsGroup is set, root has chosen the group that may read it.
func private(owner, user int) os.FileMode {
	if owner == 0 && user != 0 {
		return 0o037
	}
	return 0o077
}

// explainCluster adds what a user can do about a cluster that does not give slots.
func explainCluster(addr string, err error) error {
	var refused *standing.RefusedError
	switch {
	case errors.As(err, &refused):
		no := &failure.HostError{Host: addr, Step: "reserve slots", Err: refused, Hint: refused.Hint, Code: failure.ExitFailure}
		if refused.Small {
			no.Code = failure.ExitUsage
		}
		return no
	case errors.Is(err, standing.ErrKey):
		return &failure.HostError{Host: addr, Step: "authenticate", Err: standing.ErrKey, Hint: "the key file must be the same everywhere", Code: failure.ExitTransport}
	case errors.Is(err, standing.ErrHungUp):
		return &failure.HostError{Host: addr, Step: "connect", Err: standing.ErrHungUp, Hint: "is this the daemon's own port? its log says why it refuses connections", Code: failure.ExitTransport}
	case errors.Is(err, failure.ErrStopped):
		return err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err // without the name of the system call, since the step has the same
	}
	return &failure.HostError{Host: addr, Step: "connect", Err: err, Code: failure.ExitTransport, Hint: "is there a daemon? gorun worker --cluster-key-file FILE"}
}
