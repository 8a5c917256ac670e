package hosts_test

import (
	"reflect"
	"strings"
	"testing"

	"gorun/launcher/hosts"
)

func TestParseList(t *testing.T) {
	for in, want := range map[string][]hosts.ListedHost{
		"a:2,b":             {{"a", 2}, {"b", 0}},
		"user@a.b-c_d:16":   {{"user@a.b-c_d", 16}},
		"10.0.0.1:2":        {{"10.0.0.1", 2}},
		"fe80::1":           {{"fe80::1", 0}},
		"[fe80::1]:3":       {{"fe80::1", 3}},
		"[fe80::1]":         {{"fe80::1", 0}},
		"u@fe80::1":         {{"u@fe80::1", 0}},
		"u@[fe80::1]":       {{"u@fe80::1", 0}},
		"u@[::1]:3,c":       {{"u@::1", 3}, {"c", 0}},
		"n[08-10]:4":        {{"n08", 4}, {"n09", 4}, {"n10", 4}},
		"n[1,3-4]x[0-1],z":  {{"n1x0", 0}, {"n1x1", 0}, {"n3x0", 0}, {"n3x1", 0}, {"n4x0", 0}, {"n4x1", 0}, {"z", 0}},
		"a:2,b:1,a:3":       {{"a", 5}, {"b", 1}},
		"a,a":               {{"a", 2}},
		"A:1,a:2,me@A,Me@a": {{"A", 3}, {"me@A", 0}, {"Me@a", 0}},
	} {
		got, err := hosts.ParseList(in)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseList(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"":                                "empty entry",
		"a,,b":                            "empty entry",
		"a:0":                             "not a number from 1",
		"[fe80::1":                        "not a host name",
		"a:x":                             "not a number from 1",
		"a:99999":                         "not a number from 1",
		"-oProxy=x":                       "not a host name",
		"a b":                             "not a host name",
		"@a":                              "no user before @",
		"-oX=y@a":                         `"-oX=y@a": "-oX=y" is not a user`,
		"\"x@a":                           "is not a user",
		"n[3-1]":                          "is not a range of numbers",
		"n[1-999999]":                     "not a range",
		"n[0-9223372036854775807]":        "not a range",
		"n[0-1152921504606846975]x[1-16]": "not a range",
		"n[1-9000]x[1-2]":                 "more than 16384 hosts",
		"n[1-9000,1-9000]":                "more than 16384 hosts",
		"n[1":                             "not a host name",
		"n[1-9000],m[1-9000]":             "parse hosts: more than 16384 hosts",
		"a;rm":                            "not a host name",
	} {
		if got, err := hosts.ParseList(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseList(%q) = %v, %v; want error with %q", in, got, err, want)
		}
	}
}

func TestParseFile(t *testing.T) {
	got, err := hosts.ParseFile("\ufeff# my cluster\n\nhost1 slots=2\nhost2:3 # MPICH\r\nhost3   slots=4 max_slots=8\nhost4\nhost1 slots=1\n")
	want := []hosts.ListedHost{{"host1", 3}, {"host2", 3}, {"host3", 4}, {"host4", 0}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	got, err = hosts.ParseFile("a slots = 2 # Open MPI\nb:2 binding=user:0,1 user=me\nc count=3 username=you\nme@d cpu=1 user=x\n[::1]:2\n")
	want = []hosts.ListedHost{{"a", 2}, {"me@b", 2}, {"you@c", 3}, {"me@d", 1}, {"::1", 2}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	got, err = hosts.ParseFile("a slots=0\nb:0\nc:0 slots=2\nfe80::0\nme@fe80::0 slots=0\nd slots=0 max_slots=4\n")
	want = []hosts.ListedHost{{"c", 2}, {"fe80::0", 0}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("hosts without slots: got %v, %v; want %v", got, err, want)
	}
	for in, want := range map[string]string{
		"a slots=0\n":              "names no host that has slots",
		"host1\nhost2 slots=two\n": "line 2",
		"host1 cpus=3\n":           `parse hostfile line 1: unknown key "cpus"`,
		"host1 4\n":                `parse hostfile line 1: "4" is not of the form key=value`,
		"!!\n":                     `line 1: "!!" is not a host name`,
		"host1 user=-x\n":          `parse hostfile line 1: "-x" is not a user`,
		"# nothing\n":              "names no host that has slots",
	} {
		if _, err := hosts.ParseFile(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseFile(%q): error %v, want %q", in, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a:2,b,n[1-3]:4,[::1]:2,u@h")
	f.Add("host1 slots=2 # x\nhost2:3\n")
	f.Fuzz(func(t *testing.T, s string) {
		list, err := hosts.ParseList(s)
		file, err2 := hosts.ParseFile(s)
		for _, got := range [][]hosts.ListedHost{list, file} {
			seen := map[string]bool{}
			for _, h := range got {
				if h.Name == "" || h.Name[0] == '-' || h.Slots < 0 || seen[h.Name] || strings.ContainsAny(h.Name, " \t\n,;$`'\"") {
					t.Fatalf("%q gave host %+v (%v, %v)", s, h, err, err2)
				}
				seen[h.Name] = true
			}
		}
	})
}
