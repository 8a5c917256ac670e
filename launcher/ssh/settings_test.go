package ssh

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func testClient(t *testing.T, cfg Config, files map[string]string) *Client {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(cfg.Home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg.SystemDir = filepath.Join(cfg.Home, "etc")
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNoHome: without a home no file of the working directory takes the place of one there: a ProxyCommand would be run.
func TestNoHome(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, home := range []string{"", "."} {
		c := testClient(t, Config{Home: home, LocalUser: "me"}, map[string]string{".ssh/config": "Host *\nProxyCommand false\n", ".ssh/known_hosts": "", ".ssh/id_rsa": ""})
		s, err := c.settingsFor("a", false)
		if err != nil {
			t.Fatal(err)
		}
		if s.proxyCommand != "" {
			t.Errorf("%q: its ProxyCommand is %q", home, s.proxyCommand)
		}
		for _, file := range slices.Concat(s.knownHosts[:2], s.defaultKeys) {
			if !strings.HasPrefix(file, "/dev/null/") {
				t.Errorf("%q: it reads %s", home, file)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	home := t.TempDir()
	files := map[string]string{
		".ssh/config": `
Include conf.d/*.conf ~/more
Match user nobody
  Port 1
Match final all
  Port 2
Match exec "true" host a
  Port 3
Match host m1,m2
  HostName matched
Match localuser me host m*
  User mine
Match localuser other
  User theirs
Host a
  HostName a.example.com
  User alice
  Port 2200
  IdentityFile "~/with space"
  IdentityFile %d/.ssh/%r@%h.%n.%u
  IdentitiesOnly yes
  ProxyJump bob@b1:2222, %r.b2
  ConnectTimeout 7
  StrictHostKeyChecking no
  HostKeyAlias the-a
  UserKnownHostsFile ~/kh1 "~/kh 2"
Host !a *
  Port 2022
Host *
  User = late
`,
		".ssh/conf.d/1.conf": "Host inc\n  Hostname included\nHost *\n  AddressFamily inet6\n",
		"more":               "Host inc\n  User more\n",
		"etc/ssh_config":     "Include d/*\nHost *\n  HashKnownHosts yes\n  User system\n",
		"etc/d/x":            "Match final all\n  Include /nowhere\nHost sys\n  HostName from-system\n",
	}
	var log bytes.Buffer
	c := testClient(t, Config{Home: home, LocalUser: "me", Log: slog.New(slog.NewTextHandler(&log, nil))}, files)
	get := func(host string) *settings {
		t.Helper()
		s, err := c.settingsFor(host, false)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := get("a")
	want := &settings{
		host: "a", alias: "a", user: "alice", hostName: "a.example.com", port: 2200, network: "tcp6",
		keyAlias: "the-a", hashHosts: true, policy: Insecure, requiredKeys: 0,
		knownHosts:   []string{home + "/kh1", home + "/kh 2", home + "/etc/ssh_known_hosts", home + "/etc/ssh_known_hosts2"},
		explicitKeys: []string{home + "/with space", home + "/.ssh/alice@a.example.com.a.me"},
		agentOnly:    true, jumps: []string{"bob@b1:2222", "alice.b2"}, timeout: 7 * time.Second, limited: true,
	}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("host a:\ngot  %+v\nwant %+v", a, want)
	}
	if a.knownAs() != "the-a:22" || a.addr() != "a.example.com:2200" {
		t.Errorf("known as %s at %s", a.knownAs(), a.addr())
	}
	if m := get("m2"); m.hostName != "matched" || m.user != "mine" || m.port != 2022 {
		t.Errorf("m2: %+v", m)
	}
	if x := get("inc"); x.hostName != "included" || x.user != "more" {
		t.Errorf("inc: %+v", x)
	}
	if x := get("sys"); x.hostName != "from-system" || x.user != "late" {
		t.Errorf("sys: %+v", x)
	}
	if x := get("eve@x:99"); x.user != "eve" || x.port != 99 || len(x.defaultKeys) != 3 {
		t.Errorf("eve@x:99: %+v", x)
	}
	for _, place := range []string{"~/.ssh/config:3", "~/.ssh/config:7"} {
		if !strings.Contains(log.String(), place) {
			t.Errorf("no warning about %s in %s", place, log.String())
		}
	}
	if strings.Contains(log.String(), "final") || strings.Contains(log.String(), "config:5") {
		t.Errorf("a warning about nothing: %s", log.String())
	}
}

func TestFlagsBeatConfig(t *testing.T) {
	home := t.TempDir()
	c := testClient(t, Config{Home: home, LocalUser: "me", Port: 7, User: "flag", IdentityFiles: []string{"~/k"}, ConnectTimeout: time.Second, StrictHostKey: Strict},
		map[string]string{".ssh/config": "Host *\n Port 8\n User file\n IdentityFile ~/f\n ConnectTimeout 9\n StrictHostKeyChecking no\n"})
	s, err := c.settingsFor("h", false)
	if err != nil {
		t.Fatal(err)
	}
	if s.port != 7 || s.user != "flag" || s.timeout != time.Second || s.policy != Strict || s.requiredKeys != 1 ||
		!reflect.DeepEqual(s.explicitKeys, []string{home + "/k", home + "/f"}) {
		t.Errorf("got %+v", s)
	}
	if s, _ = c.settingsFor("h", true); s.port != 8 || s.user != "file" {
		t.Errorf("bastion: %+v", s)
	}
	if s, _ = c.settingsFor("u@h", false); s.user != "u" {
		t.Errorf("user %s", s.user)
	}
}

func TestConfigFiles(t *testing.T) {
	home := t.TempDir()
	files := map[string]string{
		".ssh/config":    "Host *\n User ours\n",
		"etc/ssh_config": "Host *\n Port 5\n",
		"mine":           "Host *\n Port 6\n",
		"broken/x":       "",
	}
	tests := []struct {
		file string
		user string
		port int
	}{
		{"", "ours", 5},
		{NoConfig, "me", 22},
		{"~/mine", "me", 6},
	}
	for _, test := range tests {
		c := testClient(t, Config{Home: home, LocalUser: "me", ConfigFile: test.file}, files)
		s, err := c.settingsFor("h", false)
		if err != nil || s.user != test.user || s.port != test.port {
			t.Errorf("%q: user %s port %d, %v; want %s %d", test.file, s.user, s.port, err, test.user, test.port)
		}
	}
	if _, err := New(Config{Home: home, ConfigFile: "~/absent"}); err == nil || !strings.Contains(err.Error(), "~/absent") {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(home, "endless"), make([]byte, maxText+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Home: home, ConfigFile: "~/endless"}); err == nil || err.Error() != "load ssh config: read ~/endless: more than 4 MiB" {
		t.Errorf("file without an end: %v", err)
	}
	if _, err := readPublic(filepath.Join(home, "endless")); err == nil || err.Error() != "more than 4 MiB" {
		t.Errorf("public key without an end: %v", err)
	}
	if _, err := New(Config{Home: home, ConfigFile: "~/broken"}); err == nil {
		t.Error("broken file: no error")
	}
	// A broken file that the user did not name is left out, whether it is the file itself or an included one.
	files[".ssh/config"] = "Include ../broken\nHost *\n User ours\n"
	c := testClient(t, Config{Home: home, LocalUser: "me"}, files)
	if s, err := c.settingsFor("h", false); err != nil || s.user != "ours" || s.port != 5 {
		t.Errorf("broken include: %+v %v", s, err)
	}
	delete(files, ".ssh/config")
	os.Remove(filepath.Join(home, ".ssh/config"))
	files[".ssh/config/directory"] = ""
	c = testClient(t, Config{Home: home, LocalUser: "me"}, files)
	if s, err := c.settingsFor("h", false); err != nil || s.user != "me" || s.port != 5 {
		t.Errorf("broken config: %+v %v", s, err)
	}
	delete(files, ".ssh/config/directory")
	os.RemoveAll(filepath.Join(home, ".ssh/config"))
	files[".ssh/config"] = "Include config\nHost *\n User ours\n"
	var log bytes.Buffer
	c = testClient(t, Config{Home: home, LocalUser: "me", Log: slog.New(slog.NewTextHandler(&log, nil))}, files)
	if s, err := c.settingsFor("h", false); err != nil || s.user != "ours" || !strings.Contains(log.String(), "includes are nested too deep") {
		t.Errorf("config that includes itself: %+v %v, log %s", s, err, &log)
	}
}

func TestSplitHost(t *testing.T) {
	tests := []struct {
		text, user, host string
		port             int
		bad              bool
	}{
		{text: "h", host: "h"},
		{text: "u@h", user: "u", host: "h"},
		{text: "u@dom@h:2", user: "u@dom", host: "h", port: 2},
		{text: "ssh://u@h:22", user: "u", host: "h", port: 22},
		{text: "::1", host: "::1"},
		{text: "[::1]", host: "::1"},
		{text: "u@[fe80::1%eth0]:2022", user: "u", host: "fe80::1%eth0", port: 2022},
		{text: "", bad: true},
		{text: "u@", bad: true},
		{text: "h:0", bad: true},
		{text: "h:99999", bad: true},
		{text: "-oX=y", bad: true},
		{text: "-l@h", bad: true},
		{text: "a b", bad: true},
	}
	if _, _, _, err := splitHost("h:0"); err == nil || err.Error() != `bad port in "h:0"` {
		t.Errorf("port 0: %v", err)
	}
	for config, want := range map[string]string{"Host h\n Port none\n": `bad Port "none" in ssh_config`, "": "no user name to log in with"} {
		c := testClient(t, Config{Home: t.TempDir()}, map[string]string{".ssh/config": config + "Host *\n User\n"})
		if _, err := c.settingsFor(map[bool]string{true: "me@h", false: "h"}[config != ""], false); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", config, err, want)
		}
	}
	for _, test := range tests {
		user, host, port, err := splitHost(test.text)
		if (err != nil) != test.bad || !test.bad && (user != test.user || host != test.host || port != test.port) {
			t.Errorf("%q: %q %q %d %v", test.text, user, host, port, err)
		}
	}
}

// FuzzConfig: whatever stands in ssh_config, we read it without falling over.
func FuzzConfig(f *testing.F) {
	f.Add("Host a\n Port 1\nMatch host b,c user d\n Include /dev/null\n", "a")
	f.Add("Match\nHost !*\n IdentityFile \"a b\" c\nProxyJump a,,b", "b@a:1")
	f.Add("Include = x\n=\nHost=\"", "[::1]:3")
	f.Fuzz(func(t *testing.T, text, host string) {
		if strings.Contains(strings.ToLower(text), "include") {
			return // no reading about on this machine
		}
		home := t.TempDir()
		path := filepath.Join(home, "c")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{Home: home, LocalUser: "u", ConfigFile: path})
		if err != nil {
			return
		}
		s, err := c.settingsFor(host, false)
		if err == nil && (s.port < 1 || s.port > 65535 || s.hostName == "" || s.user == "") {
			t.Errorf("got %+v", s)
		}
	})
}
