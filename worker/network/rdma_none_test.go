//go:build !rdma

package network

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"gorun/rendezvous/wire"
	"gorun/worker/loop"
)

// A daemon that cannot use RDMA reports why if the job wants RDMA, and only if users see the whole story for auto.
func TestNoRDMA(t *testing.T) {
	for _, c := range []struct {
		job  wire.JobOptions
		why  error
		want string
	}{
		{wire.JobOptions{RDMA: "off", Verbose: true}, nil, ""},
		{wire.JobOptions{RDMA: "on"}, nil, "data goes over TCP, not RDMA: the resident daemon runs without --rdma; start it by gorun worker --rdma"},
		{wire.JobOptions{RDMA: "mlx5_0"}, errors.New("no device"), "data goes over TCP, not RDMA: no device"},
		{wire.JobOptions{RDMA: "auto"}, errors.New("no device"), ""},
		{wire.JobOptions{RDMA: "auto", Verbose: true}, errors.New("no device"), "data goes over TCP, not RDMA: no device"},
	} {
		var out bytes.Buffer
		n := &Network{cfg: Config{Component: loop.Component{Out: wire.NewWriter(&out)}, NoRDMA: c.why}, job: &wire.Job{JobOptions: c.job}}
		n.openRDMA(nil)
		if got := out.String(); !strings.Contains(got, c.want) || (c.want == "") != (got == "") || n.upgrade() != nil {
			t.Errorf("%+v, %v: %q", c.job, c.why, got)
		}
	}
}
