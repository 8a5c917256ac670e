package keytls_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/keytls"
)

// ring returns a ring of keys, each of which is one byte, repeated.
func ring(t *testing.T, keys ...byte) *keytls.Ring {
	t.Helper()
	var all [][]byte
	for _, k := range keys {
		all = append(all, bytes.Repeat([]byte{k}, 32))
	}
	r, err := keytls.NewRing(all, "x", errRefused)
	must.Do(t, err)
	return r
}

// result is what one side has of a connection.
type result struct {
	key int
	err error
}

// meet lets a server and a client meet, over a relay if it is not nil.
func meet(t *testing.T, server, client *keytls.Ring, relay func(toServer, toClient net.Conn)) (s, c result) {
	t.Helper()
	a, b := net.Pipe()
	if relay != nil {
		near, far := net.Pipe()
		go relay(b, near)
		b = far
	}
	defer b.Close()
	done := make(chan result)
	go func() {
		_, key, err := server.Server(t.Context(), a)
		a.Close()
		done <- result{key, err}
	}()
	_, c.key, c.err = client.Client(t.Context(), b)
	b.Close()
	return <-done, c
}

// TestKeyRing: two sides meet by any key that they have in common, and each knows which one it was.
func TestKeyRing(t *testing.T) {
	for _, tt := range []struct {
		server, client []byte
		atServer, at   int // -1 if they have none in common
	}{
		{[]byte{1}, []byte{1}, 0, 0},
		{[]byte{1, 2}, []byte{1}, 0, 0},
		{[]byte{1, 2}, []byte{2}, 1, 0},
		{[]byte{1}, []byte{2, 1}, 0, 1},
		{[]byte{2, 1}, []byte{1, 2}, 0, 1},
		{[]byte{1}, []byte{2}, -1, -1},
		{[]byte{1, 2}, []byte{3, 4}, -1, -1},
	} {
		s, c := meet(t, ring(t, tt.server...), ring(t, tt.client...), nil)
		if tt.at < 0 {
			if !errors.Is(s.err, errRefused) || !errors.Is(c.err, errRefused) {
				t.Errorf("%v and %v: %v, %v", tt.server, tt.client, s.err, c.err)
			}
			continue
		}
		if s != (result{tt.atServer, nil}) || c != (result{tt.at, nil}) {
			t.Errorf("%v and %v: %+v, %+v", tt.server, tt.client, s, c)
		}
	}
	for _, n := range []int{0, 3} {
		if _, err := keytls.NewRing(make([][]byte, n), "x", errRefused); err == nil {
			t.Errorf("%d keys are accepted", n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a, _ := net.Pipe()
	if _, _, err := ring(t, 1).Client(ctx, a); err == nil {
		t.Error("a client whose time is over has met somebody")
	}
}

// strange returns the configuration of a peer that has no key.
func strange() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{"x"}}
}

// TestHostileGuess: what a peer without a key is shown does not depend on the key, so there is nothing to try guesses on.
func TestHostileGuess(t *testing.T) {
	var shown [][]byte
	for range 2 {
		a, b := net.Pipe()
		done := make(chan error)
		go func() {
			_, _, err := ring(t, 1).Server(t.Context(), a)
			a.Close()
			done <- err
		}()
		c := tls.Client(b, strange())
		must.Do(t, c.Handshake())
		shown = append(shown, c.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo)
		if _, err := c.Write(make([]byte, keytls.MaxKeys*32)); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if !bytes.Equal(got, make([]byte, keytls.MaxKeys*32)) {
			t.Errorf("a stranger is shown %x, %v", got, err)
		}
		b.Close()
		if err := <-done; !errors.Is(err, errRefused) {
			t.Errorf("a stranger: %v", err)
		}
	}
	if bytes.Equal(shown[0], shown[1]) {
		t.Error("the same key has the same certificate")
	}
}

// TestHostileRelay: a relay without the key that speaks TLS with both sides, and passes on their proofs, is refused by both.
func TestHostileRelay(t *testing.T) {
	own, err := keytls.New(bytes.Repeat([]byte{9}, 32), "x", errRefused)
	must.Do(t, err)
	own.VerifyConnection, own.ClientAuth = nil, tls.NoClientCert
	s, c := meet(t, ring(t, 1), ring(t, 1), func(toServer, toClient net.Conn) {
		server, client := tls.Client(toServer, strange()), tls.Server(toClient, own)
		go io.Copy(server, client)
		io.Copy(client, server)
		toServer.Close()
		toClient.Close()
	})
	if !errors.Is(s.err, errRefused) || !errors.Is(c.err, errRefused) {
		t.Errorf("a relay: %v, %v", s.err, c.err)
	}
	// One that sends the client's proofs back to it is refused, too.
	_, c = meet(t, ring(t, 1), ring(t, 1), func(toServer, toClient net.Conn) {
		toServer.Close()
		client := tls.Server(toClient, own)
		io.CopyN(client, client, keytls.MaxKeys*32)
		client.Close()
	})
	if !errors.Is(c.err, errRefused) {
		t.Errorf("a mirror: %v", c.err)
	}
}
