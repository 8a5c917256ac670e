//go:build !linux

package main

import (
	"errors"

	"github.com/urfave/cli/v2"
)

// workerCommand reports that hosts run Linux; the launcher runs elsewhere too.
func workerCommand(<-chan struct{}) *cli.Command {
	return &cli.Command{Name: "worker", Hidden: true, Action: func(*cli.Context) error {
		return errors.New("start worker: hosts must run Linux")
	}}
}

// hide does nothing: detached launchers of clusters run on their hosts.
func hide() error { return nil }
