package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Order is an instruction to the agent on a host, one JSON value after another on its standard input, because argv
// would show the secret: first the host's own identity, then what to measure.
type Order struct {
	Secret  []byte        `json:"secret,omitempty"`
	Host    int           `json:"host"` // itself, then the host to probe
	Addrs   []string      `json:"addrs,omitempty"`
	Sending time.Duration `json:"sending,omitempty"`

	// Bytes asks for packets in place of a connection: send some of up to this size to the first address, or without
	// one say what has come.
	Bytes int `json:"bytes,omitempty"`
}

// Answer is the agent's output: first the ports it listens on, then a result for each order.
type Answer struct {
	Port int `json:"port,omitempty"` // of TCP
	UDP  int `json:"udp,omitempty"`
	Result
	Packets
	Error string `json:"error,omitempty"`
}

// Agent is a host's side of a measurement. It ends with its input.
func Agent(ctx context.Context, in io.Reader, out io.Writer) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var me Order
	if err := orders.Decode(&me); err != nil || len(me.Secret) < 16 {
		return fmt.Errorf("read order to measure: %w", errors.Join(err, errors.New("this is for gorun itself")))
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	packets, err := net.ListenUDP("udp", nil)
	if err != nil {
		l.Close()
		return fmt.Errorf("listen for packets: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { Serve(ctx, l, Key(me.Secret, me.Host)) }) // the launcher notices a failure by the missing result
	come := make(chan packet, received)
	serving.Go(func() { drain(ctx, packets, come) })
	defer serving.Wait()
	defer packets.Close()
	defer cancel()
	if err := answers.Encode(Answer{Port: l.Addr().(*net.TCPAddr).Port, UDP: packets.LocalAddr().(*net.UDPAddr).Port}); err != nil {
		return err
	}
	for {
		var order Order
		if err := orders.Decode(&order); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read order to measure: %w", err)
		}
		var answer Answer
		switch key := Key(me.Secret, order.Host); {
		case order.Bytes == 0:
			answer.Result, err = Probe(ctx, order.Addrs, key, order.Sending)
		case len(order.Addrs) > 0:
			err = send(ctx, order.Addrs[0], key, order.Bytes)
		default:
			answer.Packets, err = receive(come, key), nil
		}
		if err != nil {
			answer.Error = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}
