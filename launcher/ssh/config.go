package ssh

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"time"
)

// Policy says what to do with a host key that known_hosts does not vouch for.
type Policy int

// The policies, in OpenSSH's words for StrictHostKeyChecking.
const (
	PolicyDefault Policy = iota // as ssh_config says; accept-new when it says nothing, or "ask"
	AcceptNew                   // record an unknown key, refuse a changed one
	Strict                      // "yes": refuse both
	Insecure                    // "no": take any key
)

// NoConfig as Config.ConfigFile means: read no ssh_config at all.
const NoConfig = "none"

const (
	defaultTimeout = 10 * time.Second
	defaultPort    = 22
)

// Config is what the user asked for on the command line, and what the process knows about itself. What it leaves zero
// comes from ssh_config, and then from OpenSSH's defaults.
type Config struct {
	Home       string // where ~ is
	SystemDir  string // the machine's ssh_config and ssh_known_hosts; "" = /etc/ssh
	ConfigFile string // replaces ~/.ssh/config and the machine's; "" = both of them, NoConfig = neither

	Port          int      // of the hosts, not of their bastions
	User          string   // of the hosts, not of their bastions; user@host beats it
	LocalUser     string   // who runs gorun: the last choice for User
	IdentityFiles []string // offered before anything else; it is an error when one does not exist

	Agent string // socket of the ssh agent (SSH_AUTH_SOCK); "" = none

	// Prompt asks the user for a passphrase without echo; nil = there is nobody to ask. It is called for one question at
	// a time, and should return when ctx ends: Client.Close waits for it.
	Prompt func(ctx context.Context, question string) (string, error)

	StrictHostKey  Policy
	ConnectTimeout time.Duration // limit of one attempt: dial, handshake, authentication; time spent in Prompt is free. 0 = as ssh_config says

	// Command, when set, is a program used in place of the built-in client, as `Command… [-p port] [-i file] [-F file]
	// host command`: the system's ssh (Kerberos, hardware keys, passwords) or anything that takes such arguments. Ctrl-C and
	// Ctrl-Z at the terminal do not reach it.
	Command []string

	Log  *slog.Logger            // nil = discard
	Note func(host, text string) // things the user should see once, such as a host key accepted; nil = discard
}

// withDefaults fills what every later function relies on.
func (c Config) withDefaults() Config {
	if c.SystemDir == "" {
		c.SystemDir = "/etc/ssh"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Note == nil {
		c.Note = func(string, string) {}
	}
	return c
}

// expandHome replaces a leading ~ and the variable HOME, the only one that key and known_hosts paths use in practice.
func (c Config) expandHome(path string) string {
	path = strings.ReplaceAll(path, "${HOME}", c.Home)
	if path == "~" {
		return c.Home
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(c.Home, rest)
	}
	return path
}

// shortPath is expandHome backwards, for messages.
func (c Config) shortPath(path string) string {
	if rest, ok := strings.CutPrefix(path, c.Home+"/"); ok && c.Home != "" {
		return "~/" + rest
	}
	return path
}
