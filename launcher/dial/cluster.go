package dial

import (
	"context"
	"errors"
	"net"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/hosts"
	"gorun/launcher/talk"
	"gorun/rendezvous/standing"
)

// Cluster starts daemons through resident daemons.
type Cluster struct{ Lease *standing.Lease }

// Dial implements Dialer.
func (c Cluster) Dial(ctx context.Context, host string) (*talk.Daemon, error) {
	conn, err := c.Lease.Start(ctx, host)
	return daemonOf(host, conn, err)
}

// Adopt implements Adopter.
func (c Cluster) Adopt(ctx context.Context, host, session string, silence time.Duration) (*talk.Daemon, error) {
	conn, err := c.Lease.Adopt(ctx, host, session, silence)
	return daemonOf(host, conn, err)
}

func daemonOf(host string, conn *standing.DaemonStream, err error) (*talk.Daemon, error) {
	if err != nil {
		e := &hosts.Error{Host: host, Step: "connect", Err: err, Code: failure.ExitTransport}
		var refused *standing.RefusedError
		if errors.As(err, &refused) {
			e.Step, e.Hint = "start daemon", refused.Hint
		}
		return nil, e
	}
	d := &talk.Daemon{In: conn, Out: conn, Remote: true, Identity: talk.Identity{Own: true}, Session: conn.Session(),
		Close: conn.Close, Wait: func() (string, error) { return "", nil },
		Away: conn.Away} // the connection ends at the resident daemon: its end proves nothing about the job's daemon
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		d.LocalIP = a.IP.String()
	}
	return d, nil
}
