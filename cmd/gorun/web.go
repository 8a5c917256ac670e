package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"gorun/launcher/web"
)

func webCommand() *cli.Command {
	return jobsCommand("web", "show a running job, or a cluster, in a browser", "[JOB]", "show the job in the cluster that has a daemon at `HOST[:PORT]`, or without JOB the cluster itself", func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{&cli.StringFlag{Name: "listen", Destination: &o.listen, Value: ":0",
			Usage: "serve the page at `[HOST]:PORT`, to this machine alone without HOST", DefaultText: "any free port"}}
	}, showPage)
}

// showPage serves the page of a job until it ends, or of a cluster if no job is named.
func showPage(ctx context.Context, o *jobsFlags) error {
	if o.cluster != "" && len(o.args) == 0 {
		return showClusterPage(ctx, o)
	}
	job, err := findJob(ctx, o, true)
	if err != nil {
		return err
	}
	served, err := web.Serve(o.listen, job.Job)
	if err != nil {
		return noPage("--listen", o.listen, err)
	}
	defer served.Close()
	fmt.Fprintf(o.errs, "gorun: the page of job %s is at %s\n", job.Label, served.URL())
	code, err := job.Job.Wait(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(o.errs, "gorun: job %s has ended with %d\n", job.Label, code)
	return nil
}

// showClusterPage serves the page of a cluster until the user ends it.
func showClusterPage(ctx context.Context, o *jobsFlags) error {
	ask := func(ctx context.Context) (any, error) {
		all, detached, err := clusterJobs(ctx, &o.clusterFlags)
		if err != nil {
			return nil, err
		}
		return listCluster(all, detached), nil
	}
	if _, err := ask(ctx); err != nil { // a mistake in the flags, or no such cluster
		return err
	}
	served, err := web.ServeCluster(o.listen, ask)
	if err != nil {
		return noPage("--listen", o.listen, err)
	}
	defer served.Close()
	fmt.Fprintf(o.errs, "gorun: the page of the cluster is at %s\n", served.URL())
	<-ctx.Done()
	return nil
}

// noPage explains why no page is served at an address.
func noPage(flag, address string, err error) error {
	return &usageError{fmt.Errorf("%s %s: %w", flag, address, err), flag + " :8080, or " + flag + " :0 for any free port"}
}
