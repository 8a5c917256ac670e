package keytls_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/keytls"
)

var errRefused = errors.New("another key")

func config(t *testing.T, seed byte, protocol string) *tls.Config {
	t.Helper()
	c, err := keytls.New(bytes.Repeat([]byte{seed}, keytls.SeedSize), protocol, errRefused)
	must.Do(t, err)
	return c
}

// shake lets two sides meet and returns the error of each.
func shake(server, client *tls.Config) (atServer, atClient error) {
	a, b := net.Pipe()
	done := make(chan error)
	go func() {
		s := tls.Server(a, server)
		err := s.Handshake()
		a.Close()
		done <- err
	}()
	c := tls.Client(b, client)
	atClient = c.Handshake()
	if atClient == nil { // a server's refusal comes after the client has done its part
		_, atClient = c.Read(make([]byte, 1))
	}
	b.Close()
	return <-done, atClient
}

func TestSameKey(t *testing.T) {
	if err, _ := shake(config(t, 1, "x"), config(t, 1, "x")); err != nil {
		t.Errorf("the same key is refused: %v", err)
	}
}

func TestOtherKeys(t *testing.T) {
	if _, err := shake(config(t, 1, "x"), config(t, 2, "x")); !errors.Is(err, errRefused) {
		t.Errorf("a server with another key: %v", err)
	}
	// A client that does not check the server is refused by the server.
	careless := config(t, 2, "x")
	careless.VerifyConnection = nil
	if err, _ := shake(config(t, 1, "x"), careless); !errors.Is(err, errRefused) {
		t.Errorf("a client with another key: %v", err)
	}
	careless.Certificates = nil
	if err, _ := shake(config(t, 1, "x"), careless); err == nil {
		t.Error("a client without a key is let in")
	}
	if err, _ := shake(config(t, 1, "x"), config(t, 1, "y")); err == nil {
		t.Error("another protocol is let in")
	}
	old := config(t, 1, "x")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if err, _ := shake(config(t, 1, "x"), old); err == nil {
		t.Error("TLS 1.2 is let in")
	}
}

func TestSeedMustFit(t *testing.T) {
	if _, err := keytls.New(make([]byte, 16), "x", errRefused); err == nil || !strings.Contains(err.Error(), "16 bytes") {
		t.Errorf("a short seed: %v", err)
	}
}
