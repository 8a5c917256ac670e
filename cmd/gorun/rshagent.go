package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"gorun/launcher/failure"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
	"gorun/worker/command"
)

// rshAgentCommand runs a command on a host as ssh does, by gorun's own ssh client. Open MPI's mpirun starts
// its daemons by way of such an agent.
func rshAgentCommand() *cli.Command {
	var o agentFlags
	return &cli.Command{
		Name:        "rsh-agent",
		Usage:       "run a command on a host by ssh, for Open MPI's mpirun",
		UsageText:   "gorun rsh-agent [flags] HOST COMMAND…",
		Description: "mpirun --mca plm_rsh_agent 'gorun rsh-agent' … reaches hosts as gorun does.",
		Flags:       o.table(),
		Action: func(c *cli.Context) error {
			o.read(c)
			return rshAgent(c.Context, &o)
		},
	}
}

// agentFlags determine how hosts are reached, and are the flags that users give to an agent called ssh.
type agentFlags struct {
	jobFlags
	user           string
	x11, quietness bool
	noInput        bool
}

func (o *agentFlags) table() []cli.Flag {
	return append(about("", o.sshTable()),
		&cli.StringFlag{Name: "l", Destination: &o.user, Usage: "log in as `USER`"},
		&cli.BoolFlag{Name: "x", Destination: &o.x11, Usage: "ssh's: there is no X11 here", Hidden: true},
		&cli.BoolFlag{Name: "n", Destination: &o.noInput, Usage: "take no standard input"},
		&cli.BoolFlag{Name: "q", Destination: &o.quietness, Usage: "ssh's", Hidden: true})
}

func rshAgent(ctx context.Context, o *agentFlags) error {
	if len(o.args) < 2 {
		return &usageError{errors.New("rsh-agent needs a host and a command"), "mpirun --mca plm_rsh_agent 'gorun rsh-agent' -H host1,host2 …"}
	}
	host := o.args[0]
	if o.user != "" && !strings.Contains(host, "@") {
		host = o.user + "@" + host
	}
	d, err := newDialer(&o.jobFlags)
	if err != nil {
		return err
	}
	defer d.ssh.Client.Close()
	var conn *ssh.Conn
	if _, err := d.retry.dial(ctx, host, func(ctx context.Context, host string) (*talk.Daemon, error) {
		var err error
		conn, err = d.ssh.Connect(ctx, host)
		return nil, err
	}); err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.Start(ctx, strings.Join(o.args[1:], " ")) // as ssh: the login shell splits it
	if err != nil {
		return fmt.Errorf("%s: start command: %w", host, err)
	}
	if o.noInput {
		session.Stdin.Close()
	} else {
		go func() { // a read from a terminal cannot be interrupted: not waited for
			io.Copy(session.Stdin, os.Stdin)
			session.Stdin.Close()
		}()
	}
	var output sync.WaitGroup
	output.Go(func() { io.Copy(os.Stdout, session.Stdout) })
	output.Go(func() { io.Copy(os.Stderr, session.Stderr) })
	output.Wait()
	code, err := session.Wait()
	switch {
	case err != nil:
		return &failure.HostError{Host: host, Step: "run", Err: err, Code: failure.ExitTransport}
	case code != 0:
		return command.ExitStatus(code)
	}
	return nil
}
