package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"gorun/launcher/output"
	"gorun/rendezvous/wire"
)

// streamFlags say what becomes of the ranks' output.
func streamFlags() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "output-filename", Usage: "also write each rank's output to `DIR`/rank.N/stdout and stderr"},
		&cli.BoolFlag{Name: "no-tag-output", Usage: "do not put [rank]<stdout>: before each line"},
		&cli.BoolFlag{Name: "prefix-output-with-timestamp", Aliases: []string{"timestamp-output", "prefix-timestamp"}, Usage: "put the time before each line"},
	}
}

// newMux makes what stands between the ranks and the user's terminal.
func newMux(c *cli.Context, ranks int) (*output.Mux, error) {
	cfg := output.Config{
		Ranks:     ranks,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		Tag:       output.HorovodTag,
		Timestamp: c.Bool("prefix-output-with-timestamp"),
		Status:    term.IsTerminal(int(os.Stderr.Fd())),
		Dir:       c.Path("output-filename"),
	}
	if term.IsTerminal(int(os.Stdout.Fd())) {
		cfg.Refresh = time.Second
	}
	if c.Bool("no-tag-output") {
		cfg.Tag = nil
	}
	return output.New(cfg)
}

// ranksOutput is the Mux in the launcher's words.
type ranksOutput struct{ *output.Mux }

func (o ranksOutput) Write(rank int, stream wire.Stream, data []byte) {
	o.Mux.Write(rank, output.Stream(stream), data)
}
