package main

import (
	"net"
	"testing"
)

// TestOwnAddress: what a daemon announces does not depend on what /etc/hosts calls the host itself.
func TestOwnAddress(t *testing.T) {
	if got := ownAddress("10.1.2.3", []string{"127.0.1.1:7576"}); got != "10.1.2.3" {
		t.Errorf("with --listen: %s", got)
	}
	alone := ownAddress("", nil)
	if net.ParseIP(alone) == nil {
		t.Errorf("without --join: %q is no address", alone)
	}
	for _, self := range []string{"127.0.0.1:7576", "127.0.1.1:7576", "[::1]:7576"} {
		if got := ownAddress("", []string{self}); got != alone {
			t.Errorf("--join %s: %s, want %s as without it", self, got, alone)
		}
	}
}
