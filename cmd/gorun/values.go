package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// lease is the value of --lease: a time, or auto, which is 0.
type lease time.Duration

// Set implements flag.Value.
func (l *lease) Set(text string) error {
	if text == "auto" {
		*l = 0
		return nil
	}
	var s seconds
	if s.Set(text) != nil {
		return errors.New("not auto, and not a time, such as 30 (seconds) or 1m30s")
	}
	if time.Duration(s) < time.Second {
		return errors.New("must be at least a second")
	}
	*l = lease(s)
	return nil
}

func (l *lease) String() string {
	if l == nil || *l == 0 {
		return "auto"
	}
	return time.Duration(*l).String()
}

// pairs is the value of a flag of two words, such as -mca KEY VALUE.
type pairs []string

// Set implements flag.Value; launchArgs has joined the words.
func (p *pairs) Set(s string) error {
	if !strings.ContainsAny(s, " =") {
		return errors.New("takes a name and a value")
	}
	*p = append(*p, s)
	return nil
}

func (p *pairs) String() string { return "" }

// Words is how many arguments the flag takes.
func (p *pairs) Words() int { return 2 }

// each calls f for every pair.
func (p pairs) each(f func(name, value string)) {
	for _, s := range p {
		i := strings.IndexAny(s, " =")
		f(s[:i], s[i+1:])
	}
}

// timeRange is the value of a flag that takes two times, as two arguments or as MIN,MAX.
type timeRange struct{ min, max time.Duration }

// Words is how many arguments the flag takes.
func (r *timeRange) Words() int { return 2 }

// Set implements flag.Value.
func (r *timeRange) Set(text string) error {
	fields := strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == ',' })
	if len(fields) != 2 {
		return errors.New("not two times, such as 10 100 (seconds)")
	}
	var low, high seconds
	if err := errors.Join(low.Set(fields[0]), high.Set(fields[1])); err != nil {
		return errors.New("not two times, such as 10 100 (seconds)")
	}
	if low <= 0 || high < low {
		return errors.New("not a range: MIN is more than 0, and MAX not less than MIN")
	}
	r.min, r.max = time.Duration(low), time.Duration(high)
	return nil
}

func (r *timeRange) String() string {
	if r == nil || r.max == 0 {
		return ""
	}
	return fmt.Sprintf("%v %v", r.min, r.max)
}

// Get implements flag.Getter.
func (r *timeRange) Get() any { return *r }
