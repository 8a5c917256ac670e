package ssh

import (
	"cmp"
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
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
	hostKeys    []string // the algorithms of host keys, in order of preference
	authorities []string // those by which an authority may sign; nil = all
	minRSA      int      // bits
	hashHosts   bool
	strict      bool // refuse a key that known_hosts does not have
	anyKey      bool // accept even one that has changed

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

	command []string // in place of gorun's own client; nil = none
	door    string   // the address of the first bastion, for the gate; "" without one
	system  error    // why the system's ssh logs in, to the machine or to a bastion on the way; nil = it does not
}

func (s *settings) addr() string { return net.JoinHostPort(s.hostName, strconv.Itoa(s.port)) }

// knownAs returns the name of the machine in known_hosts.
func (s *settings) knownAs() string {
	return cmp.Or(s.values.first("hostkeyalias"), knownName(s.hostName, s.port))
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
		switch needs := needsSystem(""); {
		case !errors.As(err, &needs):
		case c.config.program == "":
			err = &Error{Step: StepConfig, Err: fmt.Errorf("%w, which is not on this machine", err), Hint: "install openssh-client; --ssh-config none reads no file"}
		case fips140.Enforced():
			err = &Error{Step: StepConfig, Err: fmt.Errorf("%w, which FIPS 140-only mode does not limit", err), Hint: "--ssh-command ssh logs in by it"}
		default:
			s.system, err = needs, nil
		}
		if e := new(Error); err != nil && !errors.As(err, &e) {
			err = &Error{Step: StepConfig, Err: err}
		}
	}()
	user, alias, port, err := splitHost(host)
	if err != nil {
		return nil, err
	}
	if !bastion {
		user = cmp.Or(user, c.cfg.User)
		if port == 0 {
			port = c.cfg.Port
		}
	}
	own := len(c.cfg.Command) == 0 // otherwise the command, if it is ssh, obeys and refuses
	v, err := c.config.lookup(ctx, target{alias, user, port})
	if own && err == nil {
		err = v.obeyable()
	}
	taken := err // by the system's ssh
	if own && err != nil && !errors.As(err, new(needsSystem)) {
		return nil, err
	}
	s = &settings{
		host: host, alias: alias, user: cmp.Or(user, v.first("user"), c.cfg.LocalUser), port: port, network: "tcp", values: v, command: c.cfg.Command,
		hostName:  strings.ToLower(cmp.Or(v.first("hostname"), alias)),
		hashHosts: v.says("hashknownhosts"), agentOnly: v.says("identitiesonly"), batch: v.says("batchmode"), agent: c.cfg.Agent,
		timeout: c.cfg.ConnectTimeout, anyKey: slices.Contains([]string{"no", "off", "false"}, v.first("stricthostkeychecking")),
	}
	s.strict = !s.anyKey && v.first("stricthostkeychecking") != "accept-new" // no one is asked
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
	if s.jumps, s.proxyCommand, err = c.way(s); !own {
		return s, nil
	}
	if err = cmp.Or(taken, err); err == nil {
		err = c.keyFiles(s)
	}
	if err != nil {
		return s, err
	}
	s.knownHosts = c.paths(s, "userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
	s.record = append(s.knownHosts, "")[0]
	s.knownHosts = append(s.knownHosts, c.paths(s, "globalknownhostsfile", systemDir+"/ssh_known_hosts "+systemDir+"/ssh_known_hosts2")...)
	if _, err := c.expand(s, "localcommand", v.first("localcommand"), map[string]string{"%C": "", "%T": ""}); err != nil {
		return s, err // OpenSSH refuses it, although nothing is run
	}
	return s, s.limitAlgorithms()
}

// way returns the bastions, or the ProxyCommand.
func (c *Client) way(s *settings) (jumps []string, command string, err error) {
	jump := s.values.first("proxyjump")
	if jump == "" || strings.EqualFold(jump, "none") {
		command, err = c.expand(s, "proxycommand", s.values.first("proxycommand"), nil)
		return nil, command, err
	}
	if jump, err = c.expand(s, "proxyjump", jump, nil); err != nil {
		return nil, "", err
	}
	for hop := range strings.SplitSeq(jump, ",") {
		jumps = append(jumps, strings.TrimSpace(hop))
	}
	return jumps, "", nil
}

// paths splits a list of known_hosts files, which OpenSSH prints without quotes.
func (c *Client) paths(s *settings, keyword, otherwise string) (paths []string) {
	for _, word := range strings.Fields(cmp.Or(strings.Join(s.values[keyword], " "), otherwise)) {
		if !strings.EqualFold(word, "none") {
			paths = append(paths, c.cfg.expandHome(word)) // OpenSSH has replaced tokens
		}
	}
	return paths
}

// openSSHKeyFiles are the names that OpenSSH's own list has, in one release or another.
var openSSHKeyFiles = []string{"id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss"}

func (c *Client) keyFiles(s *settings) error {
	for _, f := range c.cfg.IdentityFiles {
		s.explicitKeys = append(s.explicitKeys, c.cfg.expandHome(f))
	}
	s.requiredKeys = len(s.explicitKeys)
	said := s.values["identityfile"]
	other := func(f string) bool { return !slices.Contains(openSSHKeyFiles, strings.TrimPrefix(f, "~/.ssh/")) }
	var bad error
	file := func(keyword, text string) string {
		text = c.cfg.expandHome(text)
		expanded, err := c.expand(s, keyword, text, nil)
		if strings.HasPrefix(text, "~") {
			err = needsSystem(keyword) // there is no such user
		}
		bad = cmp.Or(bad, err)
		return expanded
	}
	if len(said) < 4 || slices.ContainsFunc(said, other) { // not OpenSSH's list
		for _, f := range said {
			if !strings.EqualFold(f, "none") {
				s.explicitKeys = append(s.explicitKeys, file("identityfile", f))
			}
		}
	}
	if len(s.explicitKeys) == 0 && !slices.Equal(said, []string{"none"}) {
		for _, f := range defaultKeyFiles {
			s.defaultKeys = append(s.defaultKeys, filepath.Join(c.cfg.Home, ".ssh", f))
		}
	}
	for _, f := range s.values["certificatefile"] {
		s.certificates = append(s.certificates, file("certificatefile", f))
	}
	agent := s.values.first("identityagent")
	name, variable := strings.CutPrefix(agent, "$")
	switch {
	case agent == "" || strings.TrimPrefix(agent, "$") == "SSH_AUTH_SOCK":
	case strings.EqualFold(agent, "none"):
		s.agent = ""
	case variable && !strings.HasPrefix(name, "{"):
		s.agent, _ = c.cfg.LookupEnv(name)
	default:
		s.agent = file("identityagent", agent)
	}
	return bad
}

// special finds tokens and variables.
var special = regexp.MustCompile(`%(?s:.|$)|\$\{(\w+\})?`)

// expand replaces in the value of a keyword what `ssh -G` leaves there, and leaves other tokens to the system's ssh. more has the
// keyword's own tokens.
func (c *Client) expand(s *settings, keyword, text string, more map[string]string) (expanded string, err error) {
	proxy := strings.HasPrefix(keyword, "proxy")
	tokens := map[string]string{"%%": "%", "%h": s.hostName, "%k": cmp.Or(s.values.first("hostkeyalias"), s.alias), "%n": s.alias,
		"%p": strconv.Itoa(s.port), "%r": s.user}
	if !proxy {
		host, _ := os.Hostname()
		short, _, _ := strings.Cut(host, ".")
		maps.Copy(tokens, map[string]string{"%d": c.cfg.Home, "%i": strconv.Itoa(os.Getuid()), "%L": short, "%l": host, "%u": c.cfg.LocalUser})
	}
	maps.Copy(tokens, more)
	return special.ReplaceAllStringFunc(text, func(found string) string {
		value, known := tokens[found]
		if name, ok := strings.CutPrefix(found, "${"); ok {
			if proxy || keyword == "localcommand" { // the shell does that
				return found
			}
			value, known = c.cfg.LookupEnv(strings.TrimSuffix(name, "}"))
		}
		if !known {
			err = needsSystem(keyword)
		}
		return value
	}), err
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
