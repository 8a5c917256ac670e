package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"gorun/worker/bench"
	"gorun/worker/session"
)

// benchRank is one rank of a benchmark, started by the daemon of its host.
func benchRank(c *cli.Context) error {
	var cfg bench.Config
	if err := json.Unmarshal([]byte(c.String("rank")), &cfg); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	rank, err := session.JoinJob(c.Context, os.Getenv)
	if err != nil {
		return err
	}
	return errors.Join(bench.Run(rank, cfg, os.Stdout), rank.Close())
}
