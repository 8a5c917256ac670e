//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
)

// answerForward forwards ports of a pod to the API server.
func (k *kubelet) answerForward(w http.ResponseWriter, q *http.Request) {
	p := k.runs(q.PathValue("namespace"), q.PathValue("pod"))
	if p == nil {
		http.Error(w, "the pod does not run", http.StatusNotFound)
		return
	}
	options, err := portforward.NewV4Options(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, q, p, p.object.Name, p.object.UID, options, time.Hour, time.Minute, portforward.SupportedProtocols)
}

// PortForward implements portforward.PortForwarder.
func (p *pod) PortForward(ctx context.Context, _ string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	var to net.Conn
	err := enter([]namespace{{"net", p.sandbox}}, func() (err error) {
		to, err = (&net.Dialer{}).DialContext(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	})
	if err != nil {
		return err
	}
	defer to.Close()
	defer context.AfterFunc(ctx, func() { to.Close() })()
	done := make(chan error, 2)
	go func() {
		_, err := io.Copy(to, stream)
		done <- err
	}()
	go func() {
		_, err := io.Copy(stream, to)
		done <- err
	}()
	err = <-done
	select { // the other direction has a second, as containerd has it: an error costs the client all its connections
	case other := <-done:
		err = cmp.Or(err, other)
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return err
}
