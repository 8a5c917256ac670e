package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// settings is everything needed to log in to one machine: flags, ssh_config and defaults combined.
type settings struct {
	host     string // as in the host list, for messages
	alias    string // host without user and port, which ssh_config matches
	user     string
	hostName string // the name or address to dial
	port     int
	network  string // tcp, tcp4 or tcp6

	knownHosts  []string
	record      string   // the one that takes new keys; "" = none
	revoked     []string // files of RevokedHostKeys
	hostKeys    []string // the algorithms of host keys, in order of preference
	authorities []string // those by which an authority may sign; nil = all
	minRSA      int      // bits
	hashHosts   bool
	policy      Policy

	explicitKeys []string // from flags and ssh_config
	requiredKeys int      // how many of them came from flags and so must exist
	defaultKeys  []string // tried when there are no explicit ones
	certificates []string
	userKeys     []string // the algorithms by which keys may sign; nil = all
	agent        string
	agentOnly    bool // IdentitiesOnly: only the agent's keys that are also named
	batch        bool

	jumps        []string
	proxyCommand string
	transport    gossh.Config
	timeout      time.Duration
	limited      bool   // by the user
	values       values // all of ssh_config
}

func (s *settings) addr() string { return net.JoinHostPort(s.hostName, strconv.Itoa(s.port)) }

// knownAs returns the name of the machine in known_hosts.
func (s *settings) knownAs() string {
	return orElse(s.values.first("hostkeyalias"), knownName(s.hostName, s.port))
}

func knownName(host string, port int) string {
	if port == defaultPort {
		return host
	}
	return fmt.Sprintf("[%s]:%d", host, port)
}

var defaultKeyFiles = [...]string{"id_ed25519", "id_ecdsa", "id_rsa"}

// settingsFor combines the settings of a host, or of a bastion, for which only the key flags count. The error is an
// *Error, which hosts may share.
func (c *Client) settingsFor(ctx context.Context, host string, bastion bool) (s *settings, err error) {
	defer func() {
		if e := new(Error); err != nil && !errors.As(err, &e) {
			err = &Error{Step: StepConfig, Err: err}
		}
	}()
	user, alias, port, err := splitHost(host)
	if err != nil {
		return nil, err
	}
	if !bastion {
		user = orElse(user, c.cfg.User)
		if port == 0 {
			port = c.cfg.Port
		}
	}
	own := len(c.cfg.Command) == 0 // otherwise the command, if it is ssh, obeys and refuses
	v, err := c.config.lookup(ctx, target{alias, user, port})
	if own && err == nil {
		err = v.refusal()
	}
	if own && err != nil {
		return nil, err
	}
	s = &settings{
		host: host, alias: alias, user: orElse(user, v.first("user"), c.cfg.LocalUser), port: port, network: "tcp", values: v,
		hostName:  strings.ToLower(orElse(v.first("hostname"), alias)),
		hashHosts: v.says("hashknownhosts"), agentOnly: v.says("identitiesonly"), batch: v.says("batchmode"), agent: c.cfg.Agent,
		timeout: c.cfg.ConnectTimeout, policy: c.cfg.StrictHostKey,
	}
	if s.user == "" {
		return nil, errors.New("no user name to log in with")
	}
	if said := v.first("port"); port == 0 && said != "" {
		if s.port, err = strconv.Atoi(said); err != nil || s.port < 1 || s.port > 65535 {
			return nil, fmt.Errorf("bad Port %q in ssh_config", said)
		}
	}
	s.port = cmp.Or(s.port, defaultPort)
	switch v.first("addressfamily") {
	case "inet":
		s.network = "tcp4"
	case "inet6":
		s.network = "tcp6"
	}
	if n, err := strconv.Atoi(v.first("connecttimeout")); s.timeout <= 0 && err == nil && n > 0 {
		s.timeout = time.Duration(n) * time.Second
	}
	if s.limited = s.timeout > 0; !s.limited {
		s.timeout = defaultTimeout
	}
	if s.policy == PolicyDefault {
		s.policy = policyOf(v.first("stricthostkeychecking"))
	}
	if jump := v.first("proxyjump"); jump != "" && !strings.EqualFold(jump, "none") {
		for _, hop := range strings.Split(jump, ",") {
			s.jumps = append(s.jumps, c.expand(s, strings.TrimSpace(hop)))
		}
	} else {
		s.proxyCommand = c.expand(s, v.first("proxycommand"))
	}
	if !own {
		return s, nil
	}
	c.keyFiles(s)
	if s.knownHosts, err = c.paths(s, "userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"); err != nil {
		return nil, err
	}
	s.record = append(s.knownHosts, "")[0]
	global, err := c.paths(s, "globalknownhostsfile", systemDir+"/ssh_known_hosts "+systemDir+"/ssh_known_hosts2")
	if err != nil {
		return nil, err
	}
	s.knownHosts = append(s.knownHosts, global...)
	if s.revoked, err = c.paths(s, "revokedhostkeys", ""); err != nil {
		return nil, err
	}
	return s, s.limitAlgorithms()
}

// paths splits a list of files, in which OpenSSH does not quote blanks.
func (c *Client) paths(s *settings, keyword, otherwise string) (paths []string, err error) {
	for _, word := range strings.Fields(orElse(strings.Join(s.values[keyword], " "), otherwise)) {
		last := len(paths) - 1
		switch {
		case strings.EqualFold(word, "none"):
		case last >= 0 && word[0] != '/' && word[0] != '~':
			first := paths[last]
			paths[last] += " " + word
			if _, err := os.Stat(first); err == nil {
				err := fmt.Errorf("%s: is %q one file or more?", spelling[keyword], paths[last])
				return nil, &Error{Step: StepConfig, Err: err, Hint: "begin each path with / or ~"}
			}
		default:
			paths = append(paths, c.here(c.cfg.expandHome(word))) // OpenSSH has replaced tokens where it does
		}
	}
	return paths, nil
}

// here returns where a file is for which OpenSSH looks in its own idea of home, or on the machine.
func (c *Client) here(path string) string {
	if rest, ok := strings.CutPrefix(path, c.config.home+"/"); ok {
		return filepath.Join(c.cfg.Home, rest)
	}
	if rest, ok := strings.CutPrefix(path, systemDir+"/"); ok {
		return filepath.Join(c.cfg.SystemDir, rest)
	}
	return path
}

// openSSHKeyFiles are the names that OpenSSH's own list has, in one release or another.
var openSSHKeyFiles = []string{"id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss"}

func (c *Client) keyFiles(s *settings) {
	for _, f := range c.cfg.IdentityFiles {
		s.explicitKeys = append(s.explicitKeys, c.cfg.expandHome(f))
	}
	s.requiredKeys = len(s.explicitKeys)
	said := s.values["identityfile"]
	other := func(f string) bool { return !slices.Contains(openSSHKeyFiles, strings.TrimPrefix(f, "~/.ssh/")) }
	if len(said) < 4 || slices.ContainsFunc(said, other) { // not OpenSSH's list
		for _, f := range said {
			if !strings.EqualFold(f, "none") {
				s.explicitKeys = append(s.explicitKeys, c.cfg.expandHome(c.expand(s, f)))
			}
		}
	}
	if len(s.explicitKeys) == 0 && !slices.Equal(said, []string{"none"}) {
		for _, f := range defaultKeyFiles {
			s.defaultKeys = append(s.defaultKeys, filepath.Join(c.cfg.Home, ".ssh", f))
		}
	}
	for _, f := range s.values["certificatefile"] {
		s.certificates = append(s.certificates, c.cfg.expandHome(c.expand(s, f)))
	}
	switch v := s.values.first("identityagent"); strings.ToLower(v) {
	case "", "ssh_auth_sock", "$ssh_auth_sock":
	case "none":
		s.agent = ""
	default:
		s.agent = c.cfg.expandHome(c.expand(s, v))
	}
}

// expand replaces the tokens of ssh_config(5) that make sense before a connection exists.
func (c *Client) expand(s *settings, text string) string {
	return strings.NewReplacer(
		"%%", "%", "%d", c.cfg.Home, "%h", s.hostName, "%n", s.alias, "%p", strconv.Itoa(s.port),
		"%r", s.user, "%u", c.cfg.LocalUser, "%k", orElse(s.values.first("hostkeyalias"), s.alias), "%i", strconv.Itoa(os.Getuid()),
	).Replace(text)
}

// splitHost parses [ssh://][user@]host[:port], where host may be an IPv6 address with or without brackets.
func splitHost(text string) (user, host string, port int, err error) {
	host = strings.TrimPrefix(text, "ssh://")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		user, host = host[:i], host[i+1:]
	}
	if h, p, e := net.SplitHostPort(host); e == nil {
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return "", "", 0, fmt.Errorf("bad port in %q", text)
		}
		host = h
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	// A name that begins with a dash would be an option to a system ssh.
	if host == "" || host[0] == '-' || strings.HasPrefix(user, "-") || strings.ContainsAny(host, " \t\r\n/") {
		return "", "", 0, fmt.Errorf("bad host name %q", text)
	}
	return user, host, port, nil
}

func policyOf(text string) Policy {
	switch strings.ToLower(text) {
	case "yes", "true", "ask": // no one is asked
		return Strict
	case "no", "off", "false":
		return Insecure
	}
	return AcceptNew
}

func orElse(values ...string) string { return cmp.Or(values...) }
