package step

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"gorun/rendezvous/keytls"
)

// ErrKey means that the other side has another key.
var ErrKey = errors.New("the other side does not belong to this job")

const (
	// maxLine bounds an order, a greeting and a command line.
	maxLine = 64 << 10
	// handshakeTimeout is how long a connection may take to authenticate and to name its host.
	handshakeTimeout = 10 * time.Second
)

// keepAlive finds out that the other side's machine is gone, within half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Order is what a step process needs to know. It is secret.
type Order struct {
	Key   []byte   `json:"key"`
	Addrs []string `json:"addrs"`          // of the launcher, host:port
	Host  string   `json:"host,omitempty"` // as the launcher calls it, "" if the scheduler names it on the host
}

// ReadOrder reads the line of an order, and nothing behind it.
func ReadOrder(in io.Reader) (Order, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxLine; line = append(line, one[0]) {
		if _, err := io.ReadFull(in, one); err != nil {
			return Order{}, fmt.Errorf("read order: %w", err)
		}
		if one[0] == '\n' {
			break
		}
	}
	var o Order
	if err := json.Unmarshal(line, &o); err != nil || len(o.Key) != keytls.SeedSize || len(o.Addrs) == 0 {
		return Order{}, errors.New("read order: malformed")
	}
	return o, nil
}

// line returns the order as ReadOrder takes it.
func (o Order) line() []byte {
	text, _ := json.Marshal(o) // strings and bytes
	return append(text, '\n')
}

func newKey() ([]byte, error) {
	key := make([]byte, keytls.SeedSize)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

// channel configures TLS for both sides. The key is made for nothing else.
func channel(key []byte) (*tls.Config, error) { return keytls.New(key, "gorun-step/1", ErrKey) }

// greeting is what a step process sends first.
type greeting struct {
	Host string `json:"host"`
}

// request is the launcher's answer, sooner or later: a command line, the end, or why it refuses the host.
type request struct {
	Run     []string `json:"run,omitempty"`
	End     bool     `json:"end,omitempty"`
	Refused string   `json:"refused,omitempty"`
}

func writeLine(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

func readLine(in *bufio.Reader, v any) error {
	line, err := in.ReadSlice('\n') // the buffer has maxLine
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}
