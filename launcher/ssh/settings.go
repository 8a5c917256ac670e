package ssh

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// settings is everything needed to log in to one machine: flags, ssh_config and defaults combined.
type settings struct {
	host     string // as in the host list, for messages
	alias    string // host without user and port, which ssh_config matches
	user     string
	hostName string // the name or address to dial
	port     int
	network  string // tcp, tcp4 or tcp6

	keyAlias   string // HostKeyAlias
	knownHosts []string
	hashHosts  bool
	policy     Policy

	explicitKeys []string // from flags and ssh_config
	requiredKeys int      // how many of them came from flags and so must exist
	defaultKeys  []string // tried when there are no explicit ones
	certificates []string
	agent        string
	agentOnly    bool // IdentitiesOnly: only the agent's keys that are also named
	batch        bool

	jumps        []string
	proxyCommand string
	timeout      time.Duration
	limited      bool // by the user
}

func (s *settings) addr() string { return net.JoinHostPort(s.hostName, strconv.Itoa(s.port)) }

// knownAs returns the name of the machine in known_hosts, as host:port.
func (s *settings) knownAs() string {
	if s.keyAlias != "" {
		return net.JoinHostPort(s.keyAlias, strconv.Itoa(defaultPort))
	}
	return s.addr()
}

var defaultKeyFiles = [...]string{"id_ed25519", "id_ecdsa", "id_rsa"}

// settingsFor combines the settings of a host, or of a bastion, for which only the key flags count.
func (c *Client) settingsFor(host string, bastion bool) (*settings, error) {
	user, alias, port, err := splitHost(host)
	if err != nil {
		return nil, err
	}
	get := func(key string) string { return c.ssh.first(alias, key) }
	s := &settings{
		host: host, alias: alias, network: "tcp",
		hostName:     orElse(strings.ReplaceAll(strings.ReplaceAll(get("HostName"), "%%", "%"), "%h", alias), alias),
		keyAlias:     get("HostKeyAlias"),
		hashHosts:    isYes(get("HashKnownHosts")),
		agentOnly:    isYes(get("IdentitiesOnly")),
		batch:        isYes(get("BatchMode")),
		proxyCommand: get("ProxyCommand"),
		agent:        c.cfg.Agent,
		timeout:      c.cfg.ConnectTimeout,
	}
	s.user = orElse(user, ifNot(bastion, c.cfg.User), get("User"), c.cfg.LocalUser)
	if s.user == "" {
		return nil, errors.New("no user name to log in with")
	}
	if port == 0 && !bastion {
		port = c.cfg.Port
	}
	if v := get("Port"); port == 0 && v != "" {
		if port, err = strconv.Atoi(v); err != nil || port < 1 || port > 65535 {
			return nil, fmt.Errorf("bad Port %q in ssh_config", v)
		}
	}
	if s.port = port; port == 0 {
		s.port = defaultPort
	}
	switch strings.ToLower(get("AddressFamily")) {
	case "inet":
		s.network = "tcp4"
	case "inet6":
		s.network = "tcp6"
	}
	if n, err := strconv.Atoi(get("ConnectTimeout")); s.timeout <= 0 && err == nil && n > 0 {
		s.timeout = time.Duration(n) * time.Second
	}
	if s.limited = s.timeout > 0; !s.limited {
		s.timeout = defaultTimeout
	}
	if s.policy = c.cfg.StrictHostKey; s.policy == PolicyDefault {
		s.policy = policyOf(get("StrictHostKeyChecking"))
	}
	if jump := get("ProxyJump"); jump != "" && !strings.EqualFold(jump, "none") {
		for _, hop := range strings.Split(jump, ",") {
			s.jumps = append(s.jumps, c.expand(s, strings.TrimSpace(hop)))
		}
		s.proxyCommand = ""
	}
	if strings.EqualFold(s.proxyCommand, "none") {
		s.proxyCommand = ""
	}
	s.proxyCommand = c.expand(s, s.proxyCommand)
	c.knownHostsFiles(s)
	c.keyFiles(s)
	return s, nil
}

func (c *Client) knownHostsFiles(s *settings) {
	files := func(key string, defaults ...string) {
		value := fields(c.ssh.first(s.alias, key))
		if len(value) == 0 {
			value = defaults
		}
		for _, f := range value {
			if !strings.EqualFold(f, "none") {
				s.knownHosts = append(s.knownHosts, c.cfg.expandHome(c.expand(s, f)))
			}
		}
	}
	files("UserKnownHostsFile", "~/.ssh/known_hosts", "~/.ssh/known_hosts2")
	files("GlobalKnownHostsFile", filepath.Join(c.cfg.SystemDir, "ssh_known_hosts"), filepath.Join(c.cfg.SystemDir, "ssh_known_hosts2"))
}

func (c *Client) keyFiles(s *settings) {
	for _, f := range c.cfg.IdentityFiles {
		s.explicitKeys = append(s.explicitKeys, c.cfg.expandHome(f))
	}
	s.requiredKeys = len(s.explicitKeys)
	for _, f := range c.ssh.all(s.alias, "IdentityFile") {
		if !strings.EqualFold(f, "none") {
			s.explicitKeys = append(s.explicitKeys, c.cfg.expandHome(c.expand(s, f)))
		}
	}
	if len(s.explicitKeys) == 0 {
		for _, f := range defaultKeyFiles {
			s.defaultKeys = append(s.defaultKeys, filepath.Join(c.cfg.Home, ".ssh", f))
		}
	}
	for _, f := range c.ssh.all(s.alias, "CertificateFile") {
		s.certificates = append(s.certificates, c.cfg.expandHome(c.expand(s, f)))
	}
	if v := c.ssh.first(s.alias, "IdentityAgent"); v != "" && !strings.EqualFold(v, "SSH_AUTH_SOCK") {
		if s.agent = c.cfg.expandHome(c.expand(s, v)); strings.EqualFold(v, "none") {
			s.agent = ""
		}
	}
}

// expand replaces the tokens of ssh_config(5) that make sense before a connection exists.
func (c *Client) expand(s *settings, text string) string {
	return strings.NewReplacer(
		"%%", "%", "%d", c.cfg.Home, "%h", s.hostName, "%n", s.alias, "%p", strconv.Itoa(s.port),
		"%r", s.user, "%u", c.cfg.LocalUser, "%k", orElse(s.keyAlias, s.alias),
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
	case "yes", "true":
		return Strict
	case "no", "off", "false":
		return Insecure
	}
	return AcceptNew
}

func isYes(text string) bool {
	return strings.EqualFold(text, "yes") || strings.EqualFold(text, "true")
}

func orElse(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func ifNot(unwanted bool, value string) string {
	if unwanted {
		return ""
	}
	return value
}
