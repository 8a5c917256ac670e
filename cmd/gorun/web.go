package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"gorun/launcher/web"
)

func webCommand() *cli.Command {
	return jobsCommand("web", "show a job in a browser while it runs", "[JOB]", inCluster, func(o *jobsFlags) []cli.Flag {
		return []cli.Flag{&cli.StringFlag{Name: "listen", Destination: &o.listen, Value: ":0",
			Usage: "serve the page at `[HOST]:PORT`, to this machine alone without HOST", DefaultText: "any free port"}}
	}, showPage)
}

// showPage serves the page of a job until it ends.
func showPage(ctx context.Context, o *jobsFlags) error {
	job, err := findJob(ctx, o, true)
	if err != nil {
		return err
	}
	served, err := servePage("--listen", o.listen, job.Job)
	if err != nil {
		return err
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

// servePage serves the page of a job at the address that a flag gives.
func servePage(flag, address string, job web.Source) (*web.Server, error) {
	served, err := web.Serve(address, job)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s %s: %w", flag, address, err), flag + " :8080, or " + flag + " :0 for any free port"}
	}
	return served, nil
}
