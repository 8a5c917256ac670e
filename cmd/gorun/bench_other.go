//go:build !linux

package main

import (
	"errors"

	"github.com/urfave/cli/v2"
)

// benchRank says that ranks run on Linux; the launcher runs elsewhere too.
func benchRank(*cli.Context) error { return errors.New("start rank: hosts must run Linux") }
