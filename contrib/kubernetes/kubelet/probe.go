//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probe keeps ready as the readiness probe finds it, and closes unhealthy once the startup or liveness probe has
// failed.
func (c *container) probe(ctx context.Context, first int, unhealthy chan struct{}) {
	if s := c.object.StartupProbe; s != nil {
		if !c.watch(ctx, first, s, func(bool) bool { return false }) && ctx.Err() == nil {
			close(unhealthy)
			return
		}
	}
	set := func(ready bool) bool {
		c.pod.mu.Lock()
		defer c.pod.mu.Unlock()
		c.ready = ready && ctx.Err() == nil
		return true
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c.object.ReadinessProbe == nil {
			set(true)
			return
		}
		for ctx.Err() == nil {
			c.watch(ctx, first, c.object.ReadinessProbe, set)
			set(false)
		}
	}()
	if l := c.object.LivenessProbe; l != nil {
		if !c.watch(ctx, first, l, func(bool) bool { return true }) && ctx.Err() == nil {
			close(unhealthy)
		}
	}
	<-done
}

// watch probes until ctx ends, the probe fails as often in a row as it may, or passed returns false. It calls passed
// after each success, and reports whether the last probe succeeded.
func (c *container) watch(ctx context.Context, first int, probe *core.Probe, passed func(bool) bool) bool {
	wait := time.Duration(probe.InitialDelaySeconds) * time.Second
	for failures := int32(0); ; wait = time.Duration(probe.PeriodSeconds) * time.Second {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
		if err := c.try(ctx, first, probe); err == nil {
			failures = 0
			if !passed(true) {
				return true
			}
		} else if failures++; failures >= probe.FailureThreshold {
			return false
		}
	}
}

// try probes once.
func (c *container) try(ctx context.Context, first int, probe *core.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(probe.TimeoutSeconds)*time.Second)
	defer cancel()
	dial := func(ctx context.Context, address string) (conn net.Conn, err error) {
		err = c.pod.kubelet.node.inNetwork(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
			return err
		})
		return conn, err
	}
	address := func(port intstr.IntOrString) string {
		number := port.IntVal
		for _, p := range c.object.Ports {
			if port.Type == intstr.String && p.Name == port.StrVal {
				number = p.ContainerPort
			}
		}
		return netip.AddrPortFrom(c.pod.address, uint16(number)).String()
	}
	switch {
	case probe.Exec != nil:
		return c.exec(ctx, first, probe.Exec.Command)
	case probe.TCPSocket != nil:
		conn, err := dial(ctx, address(probe.TCPSocket.Port))
		if err == nil {
			conn.Close()
		}
		return err
	case probe.HTTPGet != nil:
		transport := &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) }}
		request, err := http.NewRequestWithContext(ctx, "GET", "http://"+address(probe.HTTPGet.Port)+"/"+probe.HTTPGet.Path, nil)
		if err != nil {
			return err
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode >= 400 {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return nil
	}
	return fmt.Errorf("unsupported kind of probe")
}
