package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

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
	number, err := strconv.Atoi(os.Getenv("GORUN_PROCESS"))
	if err != nil {
		return errors.New("start rank: this is for gorun's daemon to do")
	}
	var token [32]byte
	if n, err := hex.Decode(token[:], []byte(os.Getenv("GORUN_TOKEN"))); err != nil || n != len(token) {
		return errors.New("start rank: no token")
	}
	rank, err := session.Join(c.Context, os.Getenv("GORUN_SOCKET"), number, token)
	if err != nil {
		return err
	}
	return errors.Join(bench.Run(rank, cfg, os.Stdout), rank.Close())
}
