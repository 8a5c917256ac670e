package ssh

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	gossh "golang.org/x/crypto/ssh"
)

// checkRevoked returns an error if the file of RevokedHostKeys has the key, or cannot be read.
func (c *Client) checkRevoked(ctx context.Context, s *settings, key gossh.PublicKey) error {
	if s.revoked == "" {
		return nil
	}
	text, err := readText(s.revoked)
	if err != nil {
		return fmt.Errorf("read RevokedHostKeys: %w", err)
	}
	file, found := c.cfg.shortPath(s.revoked), false
	if bytes.HasPrefix(text, []byte("SSHKRL\n\x00")) {
		if found, err = inKRL(ctx, s.revoked, key); err != nil {
			return fmt.Errorf("read RevokedHostKeys %s: %w", file, err)
		}
		text = nil
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.Trim(line, " \t\n"); line == "" || line[0] == '#' {
			continue
		}
		words := append(strings.Fields(line), "", "")
		have := knownLine{text: [2]string{words[0], words[1]}}.key()
		if have == nil {
			return fmt.Errorf("read RevokedHostKeys %s: a line is not a key", file)
		}
		found = found || revokes(have, key)
	}
	if found {
		return fmt.Errorf("key %s is revoked by %s", describeKey(key), file)
	}
	return nil
}

// inKRL has ssh-keygen read a list of revoked keys in OpenSSH's format.
func inKRL(ctx context.Context, file string, key gossh.PublicKey) (bool, error) {
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Q", "-f", file, "/dev/stdin")
	cmd.Stdin = bytes.NewReader(gossh.MarshalAuthorizedKey(key))
	out, said, err := runBound(cmd)
	switch {
	case err == nil:
		return false, nil
	case bytes.Contains(out, []byte(": REVOKED")):
		return true, nil
	}
	return false, fmt.Errorf("ssh-keygen: %w: %s", err, oneLine(string(said)))
}
