package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"gorun/launcher/plan"
)

// localEnv returns the environment of a daemon on this machine. Its ranks inherit it, so it is filtered as theirs is.
func localEnv(o *jobFlags) []string {
	env := plan.UserEnv(os.Environ(), false)
	if !o.envNone {
		return env
	}
	keep := []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"} // what a login would have given it
	return slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(keep, name)
	})
}

// ownNames returns a function that reports whether a name of the host list is this machine.
func ownNames() func(ctx context.Context, host string) bool {
	name, _ := os.Hostname()
	short, _, _ := strings.Cut(name, ".")
	var own []netip.Addr
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr())
		}
	}
	isOwn := func(s string) bool {
		a, err := netip.ParseAddr(s)
		return err == nil && (a.IsLoopback() || slices.Contains(own, a.Unmap()))
	}
	return func(ctx context.Context, host string) bool {
		if strings.Contains(host, "@") { // a named user wants a login
			return false
		}
		if host == "localhost" || name != "" && (host == name || host == short) || isOwn(host) {
			return true
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		found, err := net.DefaultResolver.LookupHost(ctx, host)
		return err == nil && slices.ContainsFunc(found, isOwn)
	}
}
