package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/contrib/must"

	gossh "golang.org/x/crypto/ssh"
)

// testClient reads .ssh/config of files, or what cfg has, and no files of this machine.
func testClient(t *testing.T, cfg Config, files map[string]string) *Client {
	t.Helper()
	if cfg.ConfigFile == "" {
		cfg.ConfigFile = "~/.ssh/config"
		files = maps.Collect(maps.All(files))
		files[".ssh/config"] += fmt.Sprintf("\nHost *\n UserKnownHostsFile %s/.ssh/known_hosts\n GlobalKnownHostsFile %[1]s/etc/ssh_known_hosts\n", cfg.Home)
	}
	writeFiles(t, cfg.Home, files)
	c, err := New(cfg)
	must.Do(t, err)
	return c
}

// clientWithoutSSH is for a machine without OpenSSH's client.
func clientWithoutSSH(t *testing.T, cfg Config, files map[string]string) *Client {
	t.Helper()
	writeFiles(t, cfg.Home, files)
	cfg.SystemDir = filepath.Join(cfg.Home, "etc")
	c, err := New(cfg)
	must.Do(t, err)
	c.config.program = ""
	return c
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

func needsSSH(t *testing.T) {
	t.Helper()
	if newResolver(Config{}).program == "" {
		t.Skip("needs ssh: install openssh-client")
	}
}

// TestNoHome: without a home no file of the working directory takes the place of one there: a ProxyCommand would be run.
func TestNoHome(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, home := range []string{"", "."} {
		c := clientWithoutSSH(t, Config{Home: home, LocalUser: "me"}, map[string]string{".ssh/config": "Host *\nProxyCommand false\n", ".ssh/known_hosts": "", ".ssh/id_rsa": ""})
		s, err := c.settingsFor(t.Context(), "a", false)
		must.Do(t, err)
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
	needsSSH(t)
	home := t.TempDir()
	files := map[string]string{
		".ssh/config": `
Include %d/conf.d/*.conf
Match user nobody
  Port 1
Match exec "test %n = x"
  Port 3
Match host m1,m2
  HostName matched
Host a
  HostName a.example.com
  User alice
  Port 2200
  IdentityFile "~/with space"
  IdentityFile ~/with\ another
  IdentityFile %d/.ssh/%r@%h.%n
  IdentitiesOnly yes
  ProxyJump bob@b1:2222,%r.b2
  ConnectTimeout 1m
  StrictHostKeyChecking no
  HostKeyAlias The-A
  UserKnownHostsFile %d/kh1 "%d/kh2"
  KexAlgorithms sntrup761x25519-sha512@openssh.com,ecdh-sha2-nistp256
Host !a *
  Port 2022
Host *
  User = late
Include %d/etc/ssh_config
`,
		"conf.d/1.conf":  "Host inc\n  Hostname included\nHost *\n  AddressFamily inet6\n",
		"etc/ssh_config": "Match final host from-*\n  Port 77\nHost *\n  HashKnownHosts yes\n  User system\nHost sys\n  HostName From-System\n",
	}
	files[".ssh/config"] = strings.NewReplacer("%d/conf.d", home+"/conf.d", "%d/etc", home+"/etc", "%d/kh", home+"/kh").Replace(files[".ssh/config"])
	c := testClient(t, Config{Home: home, LocalUser: "me"}, files)
	get := func(host string) *settings {
		t.Helper()
		s, err := c.settingsFor(t.Context(), host, false)
		must.Do(t, err)
		return s
	}
	a := get("a")
	want := &settings{
		host: "a", alias: "a", user: "alice", hostName: "a.example.com", port: 2200, network: "tcp6",
		hashHosts: true, anyKey: true, requiredKeys: 0,
		record: home + "/kh1", hostKeys: a.hostKeys, minRSA: a.minRSA, authorities: a.authorities,
		transport:    gossh.Config{KeyExchanges: []string{"ecdh-sha2-nistp256"}, Ciphers: a.transport.Ciphers, MACs: a.transport.MACs},
		knownHosts:   []string{home + "/kh1", home + "/kh2", home + "/etc/ssh_known_hosts"},
		explicitKeys: []string{home + "/with space", home + "/with another", home + "/.ssh/alice@a.example.com.a"},
		userKeys:     a.userKeys,
		agentOnly:    true, jumps: []string{"bob@b1:2222", "alice.b2"}, timeout: time.Minute, limited: true,
		values: a.values,
	}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("host a:\ngot  %+v\nwant %+v", a, want)
	}
	if a.knownAs() != "the-a" || a.addr() != "a.example.com:2200" {
		t.Errorf("known as %s at %s", a.knownAs(), a.addr())
	}
	if len(a.hostKeys) < 6 || len(a.transport.Ciphers) < 3 || a.minRSA < 1024 || len(a.authorities) < 3 {
		t.Errorf("algorithms: %+v", a)
	}
	for host, want := range map[string]string{"m2": "late@matched:2022", "inc": "late@included:2022", "sys": "late@from-system:2022", "x": "late@x:3",
		"X": "late@x:2022", "eve@x:99": "eve@x:99"} {
		if s := get(host); fmt.Sprintf("%s@%s:%d", s.user, s.hostName, s.port) != want || len(s.defaultKeys) != 3 {
			t.Errorf("%s: %+v, want %s", host, s, want)
		}
	}
}

// TestOneQuestionForHostsAlike: OpenSSH is asked once about hosts that no file distinguishes, and about each of the others.
func TestOneQuestionForHostsAlike(t *testing.T) {
	needsSSH(t)
	for _, tc := range []struct {
		config string
		hosts  []string
		want   int32
		is     string // the last host
	}{
		{"", []string{"a", "b", "C"}, 1, "c:22"},
		{"Port 7\nHost *\n User x\nMatch final all\n Port 8", []string{"a", "b", "c", "10.0.0.1", "10.0.0.2", "fd77::1"}, 1, "[fd77::1]:7"},
		{"Host n* !nx\n Port 7\nHost gw\n HostName g.example", []string{"n1", "n2", "nx", "gw", "n3"}, 3, "n3:7"},
		{"Host a b\n HostName a", []string{"a", "b"}, 2, "a:22"},
		{"Host b\n HostName B2", []string{"a", "c", "b"}, 2, "b2:22"},
		{"Host *\n HostName %h.example", []string{"a", "b"}, 2, "b.example:22"},
		{"Match host b\n Port 7", []string{"a", "b"}, 2, "b:7"},
		{"Match exec true\n Port 7", []string{"a", "b"}, 2, "b:7"},
		{"Host=b\n Port 7", []string{"a", "b"}, 2, "b:7"},
		{"Host a # b\n Port 7", []string{"a", "b"}, 2, "b:22"},
		{"\tHost \"b\"\n Port 7", []string{"a", "b"}, 2, "b:7"},
		{"Host B\n Port 7", []string{"a", "B"}, 2, "b:7"},
		{"", []string{"a", "127.1"}, 2, "127.0.0.1:22"},
		{"", []string{"127.1", "127.2"}, 2, "127.0.0.2:22"},
		{"Host *\n ProxyCommand nc %h %p", []string{"a", "b"}, 1, "b:22"},
	} {
		home := t.TempDir()
		c := testClient(t, Config{Home: home, LocalUser: "me"}, map[string]string{".ssh/config": tc.config + "\n"})
		asked := filepath.Join(home, "asked")
		wrapper := filepath.Join(home, "ssh")
		must.Do(t, os.WriteFile(wrapper, []byte("#!/bin/sh\necho >>"+asked+"\nexec "+c.config.program+" \"$@\"\n"), 0o700))
		c.config.program = wrapper
		var last string
		for range 2 {
			for _, host := range tc.hosts {
				s, err := c.settingsFor(t.Context(), host, false)
				must.Do(t, err)
				last = s.addr()
			}
		}
		lines, err := os.ReadFile(asked)
		if err != nil || len(lines) != int(tc.want) || last != tc.is {
			t.Errorf("%q, %v: asked %d times, the last host is %s; want %d and %s", tc.config, tc.hosts, len(lines), last, tc.want, tc.is)
		}
	}
}

func TestFlagsBeatConfig(t *testing.T) {
	needsSSH(t)
	home := t.TempDir()
	c := testClient(t, Config{Home: home, LocalUser: "me", Port: 7, User: "flag", IdentityFiles: []string{"~/k"}, ConnectTimeout: time.Second},
		map[string]string{".ssh/config": "Host *\n Port 8\n User file\n IdentityFile ~/f\n ConnectTimeout 9\n StrictHostKeyChecking no\n"})
	s, err := c.settingsFor(t.Context(), "h", false)
	must.Do(t, err)
	if s.port != 7 || s.user != "flag" || s.timeout != time.Second || !s.anyKey || s.requiredKeys != 1 ||
		!reflect.DeepEqual(s.explicitKeys, []string{home + "/k", home + "/f"}) {
		t.Errorf("got %+v", s)
	}
	if s, _ = c.settingsFor(t.Context(), "h", true); s.port != 8 || s.user != "file" {
		t.Errorf("bastion: %+v", s)
	}
	if s, _ = c.settingsFor(t.Context(), "u@h", false); s.user != "u" {
		t.Errorf("user %s", s.user)
	}
}

func TestConfigFiles(t *testing.T) {
	needsSSH(t)
	me, err := osuser.Current()
	must.Do(t, err)
	home := t.TempDir()
	files := map[string]string{
		".ssh/config": "Host *\n User ours\n",
		"mine":        "Host *\n Port 6\n",
		"broken/x":    "",
	}
	tests := []struct {
		file string
		user string
		port int
	}{
		{"", "ours", 22},
		{NoConfig, me.Username, 22},
		{"~/mine", me.Username, 6},
	}
	for _, test := range tests {
		c := testClient(t, Config{Home: home, LocalUser: "me", ConfigFile: test.file}, files)
		s, err := c.settingsFor(t.Context(), "h", false)
		if err != nil || s.user != test.user || s.port != test.port {
			t.Errorf("%q: user %s port %d, %v; want %s %d", test.file, s.user, s.port, err, test.user, test.port)
		}
	}
	if _, err := New(Config{Home: home, ConfigFile: "~/absent"}); err == nil || !strings.Contains(err.Error(), "~/absent") {
		t.Errorf("missing file: %v", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(home, "endless"), make([]byte, maxText+1), 0o600))
	if _, err := New(Config{Home: home, ConfigFile: "~/endless"}); err == nil || err.Error() != "load ssh config: read ~/endless: more than 4 MiB" {
		t.Errorf("file without an end: %v", err)
	}
	if _, err := readPublic(filepath.Join(home, "endless")); err == nil || err.Error() != "more than 4 MiB" {
		t.Errorf("public key without an end: %v", err)
	}
	if _, err := New(Config{Home: home, ConfigFile: "~/broken"}); err == nil {
		t.Error("broken file: no error")
	}
	files[".ssh/config"] = "Include ../broken\nNonsense yes\n"
	c := testClient(t, Config{Home: home, LocalUser: "me"}, files)
	_, err = c.settingsFor(t.Context(), "h", false)
	if e := new(Error); !errors.As(err, &e) || e.Hint != "see: ssh -G h" || !strings.Contains(err.Error(), "ssh refuses it: ~/.ssh/config: line 2: Bad configuration option: nonsense") {
		t.Errorf("nonsense: %v", err)
	}
}

// TestBySystemSSH: where gorun's own client cannot obey, on the host or on a bastion, the system's logs in, accepts the keys
// that gorun would, and obeys nothing that is of no effect. With -v a line says so, once a host.
func TestBySystemSSH(t *testing.T) {
	needsSSH(t)
	me, err := osuser.Current()
	must.Do(t, err)
	t.Setenv("KNOWN", "a b")
	const effects = "ForwardAgent yes\nForwardX11 yes\nLocalForward 1 a:1\nRemoteForward 1 a:1\nDynamicForward 1\nPermitLocalCommand yes\nLocalCommand x\n" +
		"RequestTTY force\nRemoteCommand x\nStdinNull yes\nForkAfterAuthentication yes\nSessionType none\nTunnel yes\nControlMaster yes\nControlPath x\n" +
		"ControlPersist yes\nAddKeysToAgent yes\nUpdateHostKeys ask\nVisualHostKey yes\n"
	for config, want := range map[string]struct{ keys, because, way string }{
		"IdentityFile ~/x":                                     {},
		"VerifyHostKeyDNS no":                                  {},
		"UserKnownHostsFile \"~/a\" \"~/b\" '~/c'":             {},
		"Host other\n UserKnownHostsFile '~/a b'":              {},
		"VerifyHostKeyDNS yes":                                 {"accept-new", "VerifyHostKeyDNS", ""},
		"RevokedHostKeys ~/x\nConnectTimeout 7":                {"accept-new", "RevokedHostKeys", "flag@h:9 in 7s"},
		"PubkeyAuthentication no":                              {"accept-new", "PubkeyAuthentication", ""},
		"IdentityFile ~/%Z\nStrictHostKeyChecking no":          {"false", "IdentityFile", ""},
		"MACs umac-64@openssh.com":                             {"accept-new", "MACs", ""},
		"UserKnownHostsFile '~/a /b'":                          {"accept-new", "UserKnownHostsFile", ""},
		"GlobalKnownHostsFile \"~/a\" \"~/a /b\"":              {"accept-new", "GlobalKnownHostsFile", ""},
		"UserKnownHostsFile ${KNOWN}/c":                        {"accept-new", "UserKnownHostsFile", ""},
		"BindInterface lo\n" + effects:                         {"accept-new", "BindInterface", ""},
		"Host h\n ProxyJump u@j:7\nHost j\n ProxyJump k":       {},
		"Host h\n ProxyJump j\nHost j\n BindAddress 127.0.0.1": {"accept-new", "BindAddress", "flag@h:9 in 20s ME@j:22 in 10s to [h]:9"},
		"Host h\n ProxyJump a,u@j:7\nHost a\n ProxyJump k\nHost k\n BindAddress 127.0.0.1":    {"accept-new", "BindAddress", "flag@h:9 in 40s u@j:7 in 30s to [h]:9 ME@a:22 in 20s to [j]:7 ME@k:22 in 10s to [a]:22"},
		"PreferredAuthentications hostbased\nStrictHostKeyChecking ask\nHost h\n ProxyJump j": {"true", "PreferredAuthentications", "flag@h:9 in 20s ME@j:22 in 10s to [h]:9"},
	} {
		var notes []string
		home := t.TempDir()
		c := testClient(t, Config{Home: home, LocalUser: "me", LookupEnv: os.LookupEnv, IdentityFiles: []string{"~/a key"}, User: "flag", Port: 9, Verbose: true,
			Note: func(host, text string) { notes = append(notes, host+": "+text) }}, map[string]string{".ssh/config": config, "a key": ""})
		s, err := c.settingsFor(t.Context(), "h", false)
		must.Do(t, err)
		_, err = c.route(t.Context(), s, 0)
		must.Do(t, err)
		if (s.system != nil) != (want.because != "") {
			t.Errorf("%q: %v, want %v", config, s.system, want)
		}
		if s.system == nil {
			continue
		}
		var e external
		var way []string
		for range 2 {
			conn, err := c.Connect(t.Context(), "h")
			must.Do(t, err)
			e = conn.transport.(external)
			conn.Close()
		}
		if said := "h: this " + want.because + " needs OpenSSH's client, which logs in"; !slices.Equal(notes, []string{said}) {
			t.Errorf("%q: it says %q, want %q", config, notes, said)
		}
		if hint := e.blame("Host key verification failed.").Hint; !strings.HasPrefix(hint, "try it by hand: ssh -F /") || !strings.HasSuffix(hint, "/a key' -o ServerAliveInterval=5 flag@h true") {
			t.Errorf("%q: hint %q", config, hint)
		}
		for argv := e.argv; argv != nil; {
			out, err := exec.Command(argv[0], slices.Insert(slices.Clone(argv[1:]), 0, "-G")...).Output()
			must.Do(t, err)
			v := "\n" + string(out)
			for _, line := range []string{"requesttty false", "forwardagent no", "forwardx11 no", "clearallforwardings yes", "permitlocalcommand no", "stdinnull no",
				"forkafterauthentication no", "sessiontype default", "tunnel false", "controlmaster false", "addkeystoagent false", "updatehostkeys false", "visualhostkey no",
				"passwordauthentication no", "kbdinteractiveauthentication no", "stricthostkeychecking " + want.keys, "identityfile " + home + "/a key"} {
				if line == "sessiontype default" && slices.Contains(argv, "-W") {
					line = "sessiontype none"
				}
				if !strings.Contains(v, "\n"+line+"\n") {
					t.Errorf("%q: %q does not have %s", config, argv, line)
				}
			}
			if strings.Contains(v, "\ncontrolpath ") || strings.Contains(v, "\nremotecommand ") {
				t.Errorf("%q: %q shares a connection or has a command", config, argv)
			}
			get := func(keyword string) string {
				_, value, _ := strings.Cut(v, "\n"+keyword+" ")
				value, _, _ = strings.Cut(value, "\n")
				return value
			}
			way = append(way, fmt.Sprintf("%s@%s:%s in %ss", get("user"), get("host"), get("port"), get("connecttimeout")))
			if i := slices.Index(argv, "-W"); i > 0 {
				way = append(way, "to "+argv[i+1])
			}
			argv = words(t, strings.NewReplacer("%%", "%", "%h", get("host"), "%p", get("port")).Replace(get("proxycommand")))
		}
		if got := strings.Join(way, " "); got != strings.ReplaceAll(cmp.Or(want.way, "flag@h:9 in 10s"), "ME", me.Username) {
			t.Errorf("%q: by %s", config, got)
		}
	}
}

// words are those of a ProxyCommand, nil of none.
func words(t *testing.T, command string) []string {
	t.Helper()
	if command == "" {
		return nil
	}
	out, err := exec.Command("sh", "-c", `printf '%s\n' `+command).Output()
	must.Do(t, err)
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// TestQuestionGivenUp: a host that is given up while OpenSSH is asked for it, and for others, fails none of them.
func TestQuestionGivenUp(t *testing.T) {
	needsSSH(t)
	home := t.TempDir()
	c := testClient(t, Config{Home: home, LocalUser: "me"}, map[string]string{
		"ssh": "#!/bin/sh\nif mkdir " + home + "/first; then exec sleep 100; fi\nexec " + newResolver(Config{}).program + " \"$@\"\n"})
	c.config.program = filepath.Join(home, "ssh")
	must.Do(t, os.Chmod(c.config.program, 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.settingsFor(ctx, "a", false); err == nil || !strings.Contains(err.Error(), "context canceled") {
			t.Errorf("given up: %v", err)
		}
	})
	must.Soon(t, "the first question", func() bool {
		_, err := os.Stat(filepath.Join(home, "first"))
		return err == nil
	})
	for _, host := range []string{"a", "b", "c"} {
		wg.Go(func() {
			if s, err := c.settingsFor(t.Context(), host, false); err != nil || s.hostName != host {
				t.Errorf("%s: %+v, %v", host, s, err)
			}
		})
	}
	cancel()
	wg.Wait()
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "A", false}, {"a", "ab", false}, {"?", "", false}, {"a?c", "abc", true},
		{"*", "", true}, {"*", "abc", true}, {"a*", "abc", true}, {"*c", "abc", true}, {"*b*", "abc", true}, {"a*b*d", "abcbd", true}, {"a*b*d", "abcb", false},
		{"**", "a", true}, {"*?", "", false}, {"*?", "a", true}, {"[127.0.0.*]:22??", "[127.0.0.1]:2222", true},
		{strings.Repeat("*a", 40) + "b", strings.Repeat("a", 2000), false},
	} {
		if got := matches(tc.pattern, tc.name); got != tc.want {
			t.Errorf("%q, %q: %v", tc.pattern, tc.name, got)
		}
	}
}

// TestOldNames: a list that an older release prints under another name is obeyed, and what that leaves out takes the system's
// ssh only where a file has it for the host.
func TestOldNames(t *testing.T) {
	for written, own := range map[string]bool{"PubkeyAcceptedKeyTypes x\nChallengeResponseAuthentication no\n": true, "Other no\n": false, "Host j\nOther no\n": true} {
		home := t.TempDir()
		c := testClient(t, Config{Home: home, LocalUser: "me"}, map[string]string{".ssh/config": written,
			"ssh": "#!/bin/sh\necho debug1: Reading configuration data " + home + "/.ssh/config >&2\n" +
				"printf 'user u\\nhostname h\\npubkeyacceptedkeytypes ssh-ed25519\\nrsaminsize 3072\\nchallengeresponseauthentication no\\nother no\\n'"})
		c.config.program = filepath.Join(home, "ssh")
		must.Do(t, os.Chmod(c.config.program, 0o700))
		s, err := c.settingsFor(t.Context(), "h", false)
		if err != nil || own != (s.system == nil) || own && (s.minRSA != 3072 || !slices.Equal(s.userKeys, []string{"ssh-ed25519"})) {
			t.Errorf("%q: %+v, %v", written, s, err)
		}
	}
}

// TestWithoutSSH: on a machine without OpenSSH's client little is read, and what else limits a login is refused.
func TestWithoutSSH(t *testing.T) {
	for _, tc := range []struct {
		config, want string
		mode         os.FileMode
	}{
		{config: "# mine\nHost !h *\n Port 1\nHost h\n\tHostName\t%h.x\n User=u\n Port 7\n IdentityFile \"~/a b\"\n IdentityFile ~/c\n ProxyJump j\nForwardAgent yes\n", want: "u@h.x:7 [a b c] [j]"},
		{config: "Host *\nHashKnownHosts yes\nSendEnv LANG LC_*\n", want: "me@h:22 [] []"},
		{config: "Host x\n Ciphers aes128-ctr\n", want: "~/.ssh/config:2: this Ciphers needs OpenSSH's client, which is not on this machine"},
		{config: "Match all\n", want: "~/.ssh/config:1: this Match needs OpenSSH's client"},
		{config: "Nonsense 1\n", want: "~/.ssh/config:1: this nonsense needs OpenSSH's client"},
		{config: "User a\\ b\n", want: "~/.ssh/config:1: this User needs OpenSSH's client"},
		{config: "IdentityFile ~/%C\n", want: "this IdentityFile needs OpenSSH's client, which is not on this machine"},
		{config: "User a\n", mode: 0o620, want: "others may write ~/.ssh/config"},
	} {
		home := t.TempDir()
		c := clientWithoutSSH(t, Config{Home: home, LocalUser: "me"}, map[string]string{".ssh/config": tc.config})
		if tc.mode != 0 {
			must.Do(t, os.Chmod(filepath.Join(home, ".ssh/config"), tc.mode))
		}
		s, err := c.settingsFor(t.Context(), "h", false)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%s@%s %v %v", s.user, s.addr(), s.explicitKeys, s.jumps)
			got = strings.ReplaceAll(got, home+"/", "")
		}
		if e := new(Error); errors.As(err, &e) && e.Hint != "" && e.Hint != "install openssh-client; --ssh-config none reads no file" {
			t.Errorf("%q: hint %q", tc.config, e.Hint)
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%q: %s, want %s", tc.config, got, tc.want)
		}
	}
}

// TestBastionWithoutSSH: nor is there OpenSSH's client for a bastion.
func TestBastionWithoutSSH(t *testing.T) {
	c := clientWithoutSSH(t, Config{Home: t.TempDir(), LocalUser: "me"}, map[string]string{".ssh/config": "Host h\n ProxyJump j\nHost j\n IdentityFile ~/%C\n"})
	if _, err := c.Connect(t.Context(), "h"); err == nil || err.Error() != "h: ssh config (bastion j): this IdentityFile needs OpenSSH's client, which is not on this machine" {
		t.Errorf("got %v", err)
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
		c := clientWithoutSSH(t, Config{Home: t.TempDir()}, map[string]string{".ssh/config": config})
		if _, err := c.settingsFor(t.Context(), map[bool]string{true: "me@h", false: "h"}[config != ""], false); err == nil || err.Error() != ": ssh config: "+want {
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
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		c, err := New(Config{Home: home, LocalUser: "u", ConfigFile: path})
		if err != nil {
			return
		}
		c.config.program = ""
		s, err := c.settingsFor(t.Context(), host, false)
		if err == nil && (s.port < 1 || s.port > 65535 || s.hostName == "" || s.user == "") {
			t.Errorf("got %+v", s)
		}
	})
}
