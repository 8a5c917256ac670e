//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// followInterval is the time between two looks at a log that is followed.
const followInterval = 50 * time.Millisecond

// record writes what a container prints to a file, and to another one with the time before each line.
type record struct {
	mu            sync.Mutex
	plain, stamps *os.File
	within        bool // a line has begun
}

// newRecord opens the files of a container's log.
func newRecord(plain string) (*record, error) {
	r := new(record)
	var err error
	if r.plain, err = os.OpenFile(plain, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, err
	}
	if r.stamps, err = os.OpenFile(stamped(plain), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		r.plain.Close()
		return nil, err
	}
	return r, nil
}

// stamped is the name of the file with times beside a container's log.
func stamped(plain string) string {
	return filepath.Join(filepath.Dir(plain), "."+filepath.Base(plain))
}

func (r *record) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines bytes.Buffer
	for line := range bytes.Lines(text) {
		if !r.within {
			lines.WriteString(time.Now().UTC().Format(time.RFC3339Nano) + " ")
		}
		lines.Write(line)
		r.within = !bytes.HasSuffix(line, []byte("\n"))
	}
	if _, err := r.stamps.Write(lines.Bytes()); err != nil {
		return 0, err
	}
	return r.plain.Write(text)
}

func (r *record) Close() error { return errors.Join(r.plain.Close(), r.stamps.Close()) }

// logFile is the file of what a container prints.
func (k *kubelet) logFile(namespace, pod, container string) string {
	return filepath.Join(k.logs, fmt.Sprintf("%s_%s_%s.log", namespace, pod, container))
}

// serveLogs answers the API server's requests for logs, with the certificate in a directory, until ctx ends.
func (k *kubelet) serveLogs(ctx context.Context, dir string) (port int, err error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return 0, fmt.Errorf("read certificate: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.answerLogs)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.answerForward)
	server := &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { server.Close() })
	go server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}}))
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// answerLogs sends a container's log: its lines since a time, with their times or without, and those to come until its pod
// has ended.
func (k *kubelet) answerLogs(w http.ResponseWriter, q *http.Request) {
	names := []string{q.PathValue("namespace"), q.PathValue("pod"), q.PathValue("container")}
	file, err := os.Open(stamped(k.logFile(names[0], names[1], names[2])))
	if err != nil {
		http.Error(w, "container "+names[2]+" has no log", http.StatusNotFound)
		return
	}
	defer file.Close()
	since, _ := time.Parse(time.RFC3339, q.FormValue("sinceTime"))
	var rest []byte
	for {
		over := q.FormValue("follow") != "true" || k.runs(names[0], names[1]) == nil // before the last look
		text, err := io.ReadAll(file)
		if err != nil {
			return
		}
		rest = append(rest, text...)
		for {
			line, more, found := bytes.Cut(rest, []byte("\n"))
			if !found {
				break
			}
			rest = more
			stamp, words, _ := strings.Cut(string(line), " ")
			if at, _ := time.Parse(time.RFC3339Nano, stamp); at.Before(since) {
				continue
			}
			if q.FormValue("timestamps") == "true" {
				words = string(line)
			}
			if _, err := io.WriteString(w, words+"\n"); err != nil {
				return
			}
		}
		if over {
			w.Write(rest)
			return
		}
		http.NewResponseController(w).Flush()
		select {
		case <-q.Context().Done():
			return
		case <-time.After(followInterval):
		}
	}
}

// runs returns the pod of that name which runs on this node, nil if none does.
func (k *kubelet) runs(namespace, name string) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.object.Namespace == namespace && p.object.Name == name && !p.gone() {
			return p
		}
	}
	return nil
}
