package main

import (
	"testing"
	"time"
)

func TestLeaseFlag(t *testing.T) {
	for text, want := range map[string]time.Duration{"auto": 0, "45": 45 * time.Second, "2m": 2 * time.Minute, "1": time.Second} {
		var l lease
		if err := l.Set(text); err != nil || time.Duration(l) != want {
			t.Errorf("--lease %s: %v, %v", text, time.Duration(l), err)
		}
	}
	for _, text := range []string{"", "0", "-3", "0.5", "soon"} {
		if new(lease).Set(text) == nil {
			t.Errorf("--lease %s: accepted", text)
		}
	}
}
