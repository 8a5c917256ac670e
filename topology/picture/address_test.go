package picture

import (
	"regexp"
	"testing"
)

// TestPatterns: these patterns find what was found by hand.
func TestPatterns(t *testing.T) {
	vendor := regexp.MustCompile(`^[A-Za-z ]{1,12}$`)
	address := regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	for _, text := range []string{"", " ", "GenuineIntel", "GenuineIntel2", "GenuineIntell", "Authentic\nMD", "\"", "é",
		"0000:3b:00.0", "0000:3b:00.7", "0000:3b:00.8", "0000:3B:00.0", "000:3b:00.0", "10000:3b:00.0", "00010000:3b:00.0", "000100000:3b:00.0",
		"0000:3b:00.", "0000:3b:00.00", "0000:3b-00.0", "0000:3b:00:0", "0000:g0:00.0", "0000:0g:00.0", "0000:00:g0.0", "0000:00:0g.0", "x000:00:00.0",
		"0000", "0000:", ":3b:00.0", "pci0000:80", "0000:3b:00.0\n", "00:0:3b:00.0"} {
		if got, want := isVendor(text), vendor.MatchString(text); got != want {
			t.Errorf("isVendor(%q) is %v, want %v", text, got, want)
		}
		if got, want := isAddress(text), address.MatchString(text); got != want {
			t.Errorf("isAddress(%q) is %v, want %v", text, got, want)
		}
	}
}
