package pmi_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"gorun/collective/admit/admittest"
	"gorun/contrib/must"
	"gorun/worker/pmi"
)

func open(t *testing.T, c *cluster, host int) *pmi.Port {
	t.Helper()
	p, err := c.servers[host].Listen()
	must.Do(t, err)
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *pmi.Port) *rank {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	must.Do(t, err)
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
}

// TestHostilePort: another user who guesses numbers is not heard any more, and keeps no rank out, one of a third user
// included; neither do connections that say nothing.
func TestHostilePort(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can connect as another user")
	}
	c := newCluster(t, []int{0, 1, 2})
	p := open(t, c, 0)
	try := func(uid int, id int32) (answer string) {
		conn := admittest.As(t, uid, p.Addr())
		fmt.Fprintf(conn, "cmd=initack pmiid=%d\n", id)
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		answer, _ = bufio.NewReader(conn).ReadString('\n')
		return answer
	}
	for _, uid := range []int{12345, 0} {
		for range 20 {
			if got := try(uid, 0); got != "" {
				t.Fatalf("a wrong number is answered: %q", got)
			}
		}
	}
	const let = "cmd=initack rc=0\n"
	if got := try(12345, p.Expect(0)); got != "" {
		t.Errorf("a user who sent 20 wrong numbers got %q", got)
	}
	admittest.Flood(t, p.Addr(), 300, "")
	for rank, uid := range map[int]int{1: 0, 2: 23456} {
		if got := try(uid, p.Expect(rank)); got != let {
			t.Errorf("a rank of user %d got %q", uid, got)
		}
	}
}
