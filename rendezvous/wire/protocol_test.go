package wire

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// TestProtocol checks that the tables of PROTOCOL.md list every message with its type number and its fields.
func TestProtocol(t *testing.T) {
	text := must.Read(t, "PROTOCOL.md")
	if title := fmt.Sprintf("# The control protocol, version %d\n", Proto); !strings.HasPrefix(string(text), title) {
		t.Errorf("PROTOCOL.md does not begin with %q", title)
	}
	listed := map[int]bool{}
	row := regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \| [^|]+ \| ([^|]*) \| [^|]+ \|$`)
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		number, _ := strconv.Atoi(m[1])
		msg := newMessage(byte(number))
		if msg == nil || listed[number] {
			t.Errorf("message %d is listed twice or does not exist", number)
			continue
		}
		listed[number] = true
		of := reflect.TypeOf(msg).Elem()
		if of.Name() != m[2] {
			t.Errorf("message %d is listed as %s, but is %s", number, m[2], of.Name())
		}
		want := "–"
		if of.NumField() > 0 {
			want = strings.Join(keys(of), ", ")
		}
		if m[3] != want {
			t.Errorf("the fields of %s are listed as %q, but are %q", m[2], m[3], want)
		}
	}
	for number := range 256 {
		if msg := newMessage(byte(number)); msg != nil && !listed[number] {
			t.Errorf("%T, message %d, is not listed", msg, number)
		}
	}
}

// keys returns the keys of a message's map, in the order of its fields.
func keys(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
		switch {
		case f.Anonymous || options == "inline":
			names = append(names, keys(f.Type)...)
		case name == "":
			names = append(names, f.Name)
		default:
			names = append(names, name)
		}
	}
	return names
}
