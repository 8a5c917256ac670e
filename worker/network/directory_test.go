package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"gorun/rendezvous/wire"
)

// TestDirectory: names are looked up only for peers that may have moved, and show nothing about peers that are where
// they were, or that have no name here. A peer that was found by its name is looked for there first, until it reports
// where it is.
func TestDirectory(t *testing.T) {
	names := map[string][]netip.Addr{
		"host2": {netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.72"), netip.MustParseAddr("127.0.1.1"), netip.MustParseAddr("fd00::72")},
		"host3": {netip.MustParseAddr("10.0.0.3")},
	}
	asked := 0
	d := newDirectory()
	d.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		asked++
		if found, ok := names[host]; ok {
			return found, nil
		}
		return nil, errors.New("no such host")
	}
	for id, tc := range map[int]struct {
		name string
		data []string
		want []string // beside where it reports to be
	}{
		2: {"me@host2", []string{"10.0.0.2:700", "10.1.0.2:700"}, []string{"10.0.0.72:700", "[fd00::72]:700"}},
		3: {"host3", []string{"10.0.0.3:700"}, nil},
		4: {"alias", []string{"10.0.0.4:700"}, nil},
		5: {"host2", nil, nil},
	} {
		p := wire.Peer{ID: id, Name: tc.name, Data: tc.data}
		expect := func(want []string, when string) {
			t.Helper()
			if got := d.search(t.Context(), p, tc.data); !slices.Equal(got, want) {
				t.Errorf("%s: %s is looked for at %v, want %v", when, tc.name, got, want)
			}
		}
		everywhere := slices.Concat(tc.data, tc.want)
		expect(tc.data, "nobody doubts where it is")
		d.doubt(id)
		for range 3 {
			expect(everywhere, "somebody does")
		}
		if len(tc.want) > 0 {
			d.tried(p, connTo(tc.want[0]), nil)
			expect(slices.Concat(tc.want[:1], tc.data), "it was found by its name")
			d.tried(p, nil, errors.New("refused"))
			expect(everywhere, "it is not there any more")
			d.tried(p, connTo(tc.want[0]), nil)
			moved := p
			moved.Data = tc.want
			if got := d.search(t.Context(), moved, tc.want); !slices.Equal(got[:len(tc.want)], tc.want) {
				t.Errorf("%s says that it is at %v, and is looked for at %v", tc.name, tc.want, got)
			}
		}
		if len(tc.data) > 0 {
			d.tried(p, connTo(tc.data[0]), nil)
			expect(tc.data, "it is where it says")
		}
	}
	if asked != 3 {
		t.Errorf("%d names were looked up, want one for each peer that has addresses", asked)
	}
}

// TestDirectoryDoesNotWait: to doubt where a peer is, or to note that it was reached, takes no time while its name is
// looked up.
func TestDirectoryDoesNotWait(t *testing.T) {
	d, p := newDirectory(), wire.Peer{ID: 2, Name: "host2", Data: []string{"10.0.0.2:700"}}
	asked, answer := make(chan struct{}), make(chan struct{})
	d.resolve = func(context.Context, string) ([]netip.Addr, error) {
		close(asked)
		<-answer
		return nil, nil
	}
	d.doubt(2)
	found := make(chan []string)
	go func() { found <- d.search(t.Context(), p, p.Data) }()
	<-asked
	d.doubt(2)
	d.tried(p, connTo(p.Data[0]), nil)
	if got := d.search(t.Context(), p, p.Data); !slices.Equal(got, p.Data) {
		t.Errorf("it was reached at %v, and is looked for at %v", p.Data, got)
	}
	close(answer)
	if got := <-found; !slices.Equal(got, p.Data) {
		t.Errorf("it has no other address than %v, and is looked for at %v", p.Data, got)
	}
}

// connTo is a connection to an address.
func connTo(address string) net.Conn {
	return remote{at: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))}
}

type remote struct {
	net.Conn
	at net.Addr
}

func (r remote) RemoteAddr() net.Addr { return r.at }
