package pmi

import (
	"maps"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte("cmd=put kvsname=k key=a value=x y z\n"))
	f.Add([]byte("cmd=init pmi_version=1 pmi_subversion=1\r\n"))
	f.Add([]byte("mcmd=spawn\n"))
	f.Add([]byte("cmd= =x  x=  value="))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parse(line)
		if err != nil {
			return
		}
		for key, value := range r.args {
			if strings.ContainsAny(key, " \n") && !strings.Contains(string(line), key) || len(value) > maxLine {
				t.Errorf("argument %q=%q of %q", key, value, line)
			}
		}
		again, err := parse(line)
		if err != nil || again.cmd != r.cmd || !maps.Equal(again.args, r.args) {
			t.Errorf("%q: %v and %v", line, r, again)
		}
	})
}
