package pyenv

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gorun/rendezvous/wire"
)

// Error is why there is no environment, and what to do.
type Error struct {
	err  error
	hint string
}

func (e *Error) Error() string { return e.err.Error() }

func (e *Error) Unwrap() error { return e.err }

// NextStep returns the hint.
func (e *Error) NextStep() string { return e.hint }

func wrong(hint, format string, args ...any) error { return &Error{fmt.Errorf(format, args...), hint} }

// asked is what a host has said of its Python.
type asked struct {
	host string
	*wire.AskPython
}

// choose returns the platform that suits all hosts: that of the oldest glibc. Else the Pythons of two hosts differ.
func choose(hosts []asked) (wire.Platform, error) {
	chosen := hosts[0].Platform
	for _, h := range hosts {
		if err := differ(hosts[0], h); err != nil {
			return chosen, err
		}
		if minor(h.Platform.Libc) < minor(chosen.Libc) {
			chosen.Libc = h.Platform.Libc
		}
	}
	_, err := target(chosen)
	return chosen, err
}

// differ returns why two hosts cannot have the same environment, nil if they can.
func differ(a, b asked) error {
	one, other := a.Platform, b.Platform
	if one.Version == other.Version && one.Machine == other.Machine && (one.Libc == "") == (other.Libc == "") {
		return nil
	}
	return wrong("install one version on all hosts, and name it in the program, such as python3.11 train.py",
		"%s has Python %s (%s), and %s has Python %s (%s)", a.host, name(one), a.Path, b.host, name(other), b.Path)
}

// name describes a platform to users.
func name(p wire.Platform) string {
	libc := "glibc " + p.Libc
	if p.Libc == "" {
		libc = "musl"
	}
	return fmt.Sprintf("%s on %s with %s", p.Version, p.Machine, libc)
}

var usual = regexp.MustCompile(`^3\.\d+$`)

// target returns what uv calls a platform.
func target(p wire.Platform) (string, error) {
	switch {
	case !usual.MatchString(p.Version) || p.Machine != "x86_64" && p.Machine != "aarch64" || p.Libc != "" && tier(p.Libc) == 0:
		return "", wrong("make the environment on the hosts, and leave out --python",
			"hosts have Python %s: environments are for usual builds of Python 3 on x86_64 and aarch64, with glibc 2.17 or newer, or musl", name(p))
	case p.Libc == "":
		return p.Machine + "-unknown-linux-musl", nil
	}
	return fmt.Sprintf("%s-manylinux_2_%d", p.Machine, tier(p.Libc)), nil
}

// tier returns the minor version of glibc whose wheels suit a version: nearly all wheels are for one of two.
func tier(libc string) int {
	switch m := minor(libc); {
	case m >= 28:
		return 28
	case m >= 17:
		return 17
	}
	return 0
}

func minor(libc string) int {
	_, after, _ := strings.Cut(libc, ".")
	n, _ := strconv.Atoi(after) // 0 for what is no version
	return n
}
