package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"
)

// seconds is the value of a flag that takes a time: a number of seconds, as horovodrun and mpirun have it,
// or with a unit, as in 1m30s.
type seconds time.Duration

// Set implements flag.Value.
func (s *seconds) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil && n > -1e9 && n < 1e9 {
		*s = seconds(n * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("not a time, such as 30 (seconds) or 1m30s")
	}
	*s = seconds(d)
	return nil
}

func (s *seconds) String() string {
	if s == nil {
		return ""
	}
	return time.Duration(*s).String()
}

// Get implements flag.Getter.
func (s *seconds) Get() any { return time.Duration(*s) }

// timeFlag makes a flag that takes seconds or a time with a unit.
func timeFlag(name string, field *time.Duration, value time.Duration, usage string) *cli.GenericFlag {
	*field = value
	return &cli.GenericFlag{Name: name, Value: (*seconds)(field), Usage: usage}
}
