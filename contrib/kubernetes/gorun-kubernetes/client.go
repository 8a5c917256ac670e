package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// callLimit bounds one request, except for logs.
	callLimit = 30 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 64 << 20
)

// The kinds of objects: version and plural, as the API server has them.
const (
	setPath    = "jobset.x-k8s.io/v1alpha2 jobsets"
	podPath    = "v1 pods"
	eventPath  = "v1 events"
	secretPath = "v1 secrets"
)

// client makes requests to the API server, for objects of one namespace.
type client struct {
	http      *http.Client
	base      *url.URL
	namespace string
	config    *rest.Config
}

// refusal is an answer of the API server other than success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// refused returns the status of a refusal, 0 for other errors.
func refused(err error) int {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.code
	}
	return 0
}

// newClient finds the API server as kubectl does: by KUBECONFIG, ~/.kube/config, or as a pod of the cluster.
func newClient(kubeContext, namespace string) (*client, error) {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: kubeContext}
	found := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), overrides)
	config, err := found.ClientConfig()
	if err != nil {
		return nil, &mistake{fmt.Errorf("read kubeconfig: %w", err), "kubectl config get-contexts shows them; --context NAME chooses one"}
	}
	if namespace == "" {
		if namespace, _, err = found.Namespace(); err != nil {
			return nil, &mistake{fmt.Errorf("read kubeconfig: %w", err), "--namespace NAME"}
		}
	}
	c := &client{namespace: namespace, config: config}
	config.UserAgent = "gorun-kubernetes"
	if c.base, _, err = rest.DefaultServerUrlFor(config); err == nil {
		c.http, err = rest.HTTPClientFor(config)
	}
	if err != nil {
		return nil, &mistake{fmt.Errorf("read kubeconfig: %w", err), "kubectl get pods must work first"}
	}
	return c, nil
}

// address returns the URL of a kind's objects, or of one of them.
func (c *client) address(kind, name string, query url.Values) string {
	version, plural, _ := strings.Cut(kind, " ")
	prefix := "apis"
	if !strings.Contains(version, "/") {
		prefix = "api"
	}
	at := c.base.JoinPath(prefix, version, "namespaces", c.namespace, plural, name)
	at.RawQuery = query.Encode()
	return at.String()
}

// request sends a request; the caller closes the answer's body. A refusal is an error.
func (c *client) request(ctx context.Context, method, address string, body any) (io.ReadCloser, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < 300 {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	var status meta.Status
	if json.Unmarshal(said, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(answer.Status + " " + string(said))
	}
	return nil, &refusal{answer.StatusCode, status.Message}
}

// call makes a request and decodes the answer, if into is not nil.
func (c *client) call(ctx context.Context, method, address string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answer, err := c.request(ctx, method, address, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	text, err := io.ReadAll(io.LimitReader(answer, maxAnswer))
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// list reads the objects of a kind that a query selects.
func (c *client) list(ctx context.Context, kind string, query url.Values, into any) error {
	return c.call(ctx, "GET", c.address(kind, "", query), nil, into)
}
