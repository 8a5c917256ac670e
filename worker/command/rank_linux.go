package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"gorun/worker/bench"
	"gorun/worker/rank"
)

// benchRank is one rank of a benchmark, started by the daemon of its host.
func (p Process) benchRank(ctx context.Context, config string) error {
	var cfg bench.Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	s, err := rank.JoinJob(ctx, p.getenv)
	if err != nil {
		return err
	}
	return errors.Join(bench.Run(s, cfg, os.Stdout), s.Close())
}
