package ssh

import (
	"context"
	"log/slog"
	osuser "os/user"
	"path/filepath"
	"strings"
	"time"
)

// NoConfig as Config.ConfigFile means to read no ssh_config at all.
const NoConfig = "none"

// noHome is a directory in which no file can be.
const noHome = "/dev/null"

const (
	defaultTimeout = 10 * time.Second
	defaultPort    = 22
	systemDir      = "/etc/ssh"
)

// Config is what the user asked for on the command line, and what the process knows about itself. Zero fields are taken
// from ssh_config, and then from OpenSSH's defaults.
type Config struct {
	Home       string // of the user, as in passwd, which ~ stands for; if it is not absolute, there are no files of a user's
	SystemDir  string // where the machine's ssh_config is, for a machine without OpenSSH; "" = systemDir
	ConfigFile string // replaces ~/.ssh/config and the machine's; "" = both of them, NoConfig = neither

	Port          int      // of the hosts, not of their bastions
	User          string   // of the hosts, not of their bastions; user@host beats it
	LocalUser     string   // the user who runs gorun: the last choice for User
	IdentityFiles []string // offered before anything else; it is an error when one does not exist

	Agent string // socket of the ssh agent (SSH_AUTH_SOCK); "" = none

	// LookupEnv returns a variable of the environment, which a configuration may name; nil = none is set.
	LookupEnv func(name string) (value string, set bool)

	// Prompt asks the user for a passphrase without echo; nil = no one can be asked. It is called for one question at a
	// time, and should return when ctx ends, as Client.Close waits for it.
	Prompt func(ctx context.Context, question string) (string, error)

	ConnectTimeout time.Duration // limit of one attempt: dial, handshake, authentication; time spent in Prompt does not count. 0 = as in ssh_config

	// Command, when set, is a program used in place of the built-in client, as `Command… [-p port] [-i file] [-F file]
	// host command`: the system's ssh (Kerberos, hardware keys, passwords) or anything that takes such arguments. Ctrl-C
	// and Ctrl-Z at the terminal do not reach it.
	Command []string

	Log     *slog.Logger            // nil = discard
	Note    func(host, text string) // reports events the user should see once, such as an accepted host key; nil = discard
	Verbose bool                    // Note also has the hosts that the system's ssh logs in to, and why
}

// withDefaults fills in what every later function relies on.
func (c Config) withDefaults() Config {
	if !filepath.IsAbs(c.Home) { // whoever made the working directory must not choose the commands that are run
		c.Home = noHome
	}
	if c.SystemDir == "" {
		c.SystemDir = systemDir
	}
	if c.LookupEnv == nil {
		c.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Note == nil {
		c.Note = func(string, string) {}
	}
	return c
}

// expandHome replaces a leading ~, also of another user.
func (c Config) expandHome(path string) string {
	name, rest, _ := strings.Cut(path, "/")
	if name == "~" {
		return filepath.Join(c.Home, rest)
	}
	if name, ok := strings.CutPrefix(name, "~"); ok {
		if other, err := osuser.Lookup(name); err == nil {
			return filepath.Join(other.HomeDir, rest)
		}
	}
	return path
}

// shortPath reverses expandHome, for messages.
func (c Config) shortPath(path string) string {
	if rest, ok := strings.CutPrefix(path, c.Home+"/"); ok && c.Home != "" {
		return "~/" + rest
	}
	return path
}
