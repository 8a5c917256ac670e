package main

import "testing"

func TestPythonVersion(t *testing.T) {
	for in, want := range map[string]string{
		"1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3rc1", "1.2.3-alpha.2+5.g01ab": "1.2.3a2+5.g01ab", "0.0.0+971.g07c3.dirty": "0.0.0+971.g07c3.dirty",
		"": "", "v1.2.3": "", "1.2": "", "1.2.3-next": "", "1.2.3+": "", "1.2.3+a-b": "", "1.2.3\"": "",
	} {
		if got, err := pythonVersion(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}
