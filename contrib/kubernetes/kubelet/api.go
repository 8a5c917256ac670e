//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// client makes requests to the API server.
type client struct {
	http       http.Client
	url, token string
}

// refusal is an answer of the API server other than success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.code, r.text) }

func newClient(url, ca, token string) (*client, error) {
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read certificate: none in %s", ca)
	}
	return &client{http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool},
		MaxIdleConnsPerHost: 20}}, url, token}, nil
}

func (c *client) get(ctx context.Context, path string, into any) error {
	return c.call(ctx, "GET", path, nil, into)
}

// call makes a request and decodes the answer, if into is not nil.
func (c *client) call(ctx context.Context, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		var status meta.Status
		if json.Unmarshal(answer, &status) != nil || status.Message == "" {
			status.Message = string(answer)
		}
		return &refusal{response.StatusCode, status.Message}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
