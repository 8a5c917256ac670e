package pmi_test

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"gorun/worker/pmi"
)

func open(t *testing.T, c *cluster, host int) *pmi.Port {
	t.Helper()
	p, err := c.servers[host].Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *pmi.Port) *rank {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &rank{t, conn, bufio.NewReader(conn)}
}

func TestPort(t *testing.T) {
	c := newCluster(t, []int{0}, []int{1})
	p := open(t, c, 1)
	id := p.Expect(1)
	r := dial(t, p)
	// A client may send the next thing before it has heard the answer.
	r.send(fmt.Sprintf("cmd=initack pmiid=%d\ncmd=init pmi_version=1 pmi_subversion=1", id))
	for _, want := range []string{"cmd=initack rc=0", "cmd=set size=2", "cmd=set rank=1", "cmd=set debug=0", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"} {
		if got := r.hear(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := r.ask("cmd=get_my_kvsname"); got != "cmd=my_kvsname kvsname=gorun_j" {
		t.Error(got)
	}
	p.Close() // the rank stays
	if got := r.ask("cmd=finalize"); got != "cmd=finalize_ack" {
		t.Error(got)
	}
}

func TestPortRefuses(t *testing.T) {
	c := newCluster(t, []int{0, 1})
	p := open(t, c, 0)
	id := p.Expect(0)
	refused := func(line string) {
		t.Helper()
		r := dial(t, p)
		fmt.Fprintln(r.conn, line) // or it is closed already
		r.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if s, err := r.r.ReadString('\n'); err == nil {
			t.Errorf("%q: answered %q", line, s)
		} else if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("%q: the connection is still open", line)
		}
	}
	refused(fmt.Sprintf("cmd=initack pmiid=%d", id^1))
	refused(fmt.Sprintf("cmd=init pmiid=%d", id))
	refused("cmd=initack")
	dial(t, p).ask(fmt.Sprintf("cmd=initack pmiid=%d", id))
	refused(fmt.Sprintf("cmd=initack pmiid=%d", id)) // once is enough
	other := p.Expect(1)
	for range 16 {
		refused("cmd=initack pmiid=0")
	}
	refused(fmt.Sprintf("cmd=initack pmiid=%d", other)) // now no one is let in
}
