// Command gorun-vsphere supplies gorun with vCenter's knowledge: on which ESXi host each virtual machine is, and when one
// is about to be moved.
//
//	gorun-vsphere facts >facts.yaml && gorun --topology facts.yaml …
//	gorun --moves 'gorun-vsphere moves' …
//
// It reads vCenter's address and a login from GOVC_URL, GOVC_USERNAME, GOVC_PASSWORD and GOVC_INSECURE, as govc does: a
// password does not belong in arguments. It changes nothing in vCenter, and no goroutine outlives a command.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
)

const usage = `usage: gorun-vsphere [-by name|guest|ip] [-leave] facts|moves

  facts   write what --topology of gorun reads: the ESXi host, the rack (a DRS host group) and the zone (the cluster)
          of every virtual machine
  moves   write a line whenever a virtual machine is about to be moved, or was; for --moves of gorun

  -by     call virtual machines as gorun's host list does: by their names in vCenter, their guests' host names, or
          their guests' IP addresses
  -leave  also have elastic jobs leave virtual machines whose ESXi host enters maintenance mode, until they have moved or it
          is back: for those that cannot be moved

GOVC_URL, GOVC_USERNAME and GOVC_PASSWORD say where vCenter is and who asks; GOVC_INSECURE=1 takes any certificate.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "gorun-vsphere: error: %v\n", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("see gorun-vsphere -help")

// run is the program.
func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	flags := flag.NewFlagSet("gorun-vsphere", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	by := flags.String("by", "name", "")
	leave := flags.Bool("leave", false, "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	naming, ok := namings[*by]
	if !ok {
		return fmt.Errorf("-by %s: not name, guest or ip: %w", *by, errUsage)
	}
	if flags.NArg() != 1 || flags.Arg(0) != "facts" && flags.Arg(0) != "moves" {
		return fmt.Errorf("what to do? %w", errUsage)
	}
	client, err := connect(ctx, getenv)
	if err != nil {
		return err
	}
	defer client.Logout(context.WithoutCancel(ctx))
	if flags.Arg(0) == "moves" {
		return watchMoves(ctx, client.Client, naming, *leave, func(line string) error {
			_, err := fmt.Fprintln(out, line)
			return err
		})
	}
	return writeFacts(ctx, client.Client, naming, out)
}

// connect logs in to vCenter.
func connect(ctx context.Context, getenv func(string) string) (*govmomi.Client, error) {
	address, err := soap.ParseURL(getenv("GOVC_URL"))
	if err != nil || address == nil {
		return nil, errors.New("connect to vCenter: GOVC_URL is no address, such as https://vcenter/sdk")
	}
	if user := getenv("GOVC_USERNAME"); user != "" {
		address.User = url.UserPassword(user, getenv("GOVC_PASSWORD"))
	}
	insecure, _ := strconv.ParseBool(getenv("GOVC_INSECURE"))
	client, err := govmomi.NewClient(ctx, address, insecure)
	if err != nil {
		return nil, fmt.Errorf("connect to vCenter at %s: %w", address.Host, err)
	}
	return client, nil
}

// writeFacts writes a file of facts.
func writeFacts(ctx context.Context, c *vim25.Client, naming naming, out io.Writer) error {
	list, err := machines(ctx, c, naming)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, "# written by gorun-vsphere\nhosts:")
	for _, m := range list {
		fmt.Fprintf(w, "  %s:\n", strconv.Quote(m.name))
		for _, label := range []struct{ key, value string }{{"esxi", m.esxi}, {"rack", m.rack}, {"zone", m.zone}} {
			if label.value != "" {
				fmt.Fprintf(w, "    %s: %s\n", label.key, strconv.Quote(label.value))
			}
		}
		fmt.Fprintln(w, "    by: vCenter")
	}
	return w.Flush()
}
