package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"gorun/worker/bench"
	"gorun/worker/session"
)

// benchRank is one rank of a benchmark, started by the daemon of its host.
func (p Process) benchRank(ctx context.Context, config string) error {
	var cfg bench.Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	rank, err := session.JoinJob(ctx, p.getenv)
	if err != nil {
		return err
	}
	return errors.Join(bench.Run(rank, cfg, os.Stdout), rank.Close())
}
