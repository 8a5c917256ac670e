package ssh

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// class is what gorun does about a keyword of ssh_config.
type class int

const (
	unknown class = iota // refused where a file has it
	obeyed
	without // of no effect on what gorun does
	refused // unless it is off
)

var keywords = map[class]string{
	obeyed: `AddressFamily BatchMode BindAddress CanonicalDomains CanonicalizeFallbackLocal CanonicalizeHostname
		CanonicalizeMaxDots CanonicalizePermittedCNAMEs CASignatureAlgorithms CertificateFile CheckHostIP Ciphers
		ConnectTimeout GlobalKnownHostsFile HashKnownHosts Host HostKeyAlgorithms HostKeyAlias HostName
		IdentitiesOnly IdentityAgent IdentityFile IgnoreUnknown Include KexAlgorithms KnownHostsCommand MACs Match
		NoHostAuthenticationForLocalhost Port PreferredAuthentications ProxyCommand ProxyJump
		PubkeyAcceptedAlgorithms PubkeyAcceptedKeyTypes PubkeyAuthentication RequiredRSASize RevokedHostKeys
		RSAMinSize StrictHostKeyChecking Tag User UserKnownHostsFile`,
	without: `AddKeysToAgent ChallengeResponseAuthentication ChannelTimeout ClearAllForwardings Compression
		CompressionLevel ConnectionAttempts ControlMaster ControlPath ControlPersist DynamicForward
		EnableEscapeCommandline EnableSSHKeysign EscapeChar ExitOnForwardFailure FingerprintHash
		ForkAfterAuthentication ForwardAgent ForwardX11 ForwardX11Timeout ForwardX11Trusted GatewayPorts
		GSSAPIAuthentication GSSAPIClientIdentity GSSAPIDelegateCredentials GSSAPIKexAlgorithms GSSAPIKeyExchange
		GSSAPIRenewalForcesRekey GSSAPIServerIdentity GSSAPITrustDns HostbasedAcceptedAlgorithms
		HostbasedAuthentication HostbasedKeyTypes IPQoS KbdInteractiveAuthentication KbdInteractiveDevices
		LocalCommand LocalForward LogLevel LogVerbose NumberOfPasswordPrompts ObscureKeystrokeTiming
		PasswordAuthentication PermitLocalCommand PermitRemoteOpen PKCS11Provider Protocol RekeyLimit RemoteCommand
		RemoteForward RequestTTY SecurityKeyProvider SendEnv ServerAliveCountMax ServerAliveInterval SessionType
		SetEnv StdinNull StreamLocalBindMask StreamLocalBindUnlink SyslogFacility TCPKeepAlive Tunnel TunnelDevice
		UpdateHostKeys UseKeychain UsePrivilegedPort VersionAddendum VisualHostKey WarnWeakCrypto XAuthLocation`,
	refused: `BindInterface ProxyUseFdpass RefuseConnection VerifyHostKeyDNS`,
}

// classes and spelling are by keyword in lower case.
var classes, spelling = func() (map[string]class, map[string]string) {
	classes, spelling := map[string]class{"host": obeyed, inOrder: obeyed, inQuotes: obeyed}, map[string]string{}
	for class, list := range keywords {
		for _, keyword := range strings.Fields(list) {
			classes[strings.ToLower(keyword)], spelling[strings.ToLower(keyword)] = class, keyword
		}
	}
	return classes, spelling
}()

// renamed has the present names of keywords that older releases print.
var renamed = map[string]string{"pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms", "rsaminsize": "requiredrsasize"}

const systemHint = "--ssh-command ssh logs in by the system's ssh, which can"

// no is the refusal of a keyword.
func (v values) no(keyword, why string) error {
	err := fmt.Errorf("%s %s: %s", cmp.Or(spelling[keyword], keyword), strings.Join(v[keyword], " "), why)
	return &Error{Step: StepConfig, Err: err, Hint: systemHint}
}

// refusal returns why gorun's own client must not log in as the values have it, nil if it may.
func (v values) refusal() error {
	for _, keyword := range slices.Sorted(maps.Keys(v)) {
		said := strings.ToLower(v.first(keyword))
		off := said == "" || said == "no" || said == "false"
		switch {
		case classes[keyword] == unknown, classes[keyword] == refused && !off,
			// Quotes take more than to split at blanks, and CheckHostIP another run for the address.
			keyword == "knownhostscommand" && said != "none" && (strings.ContainsAny(said, "'\"\\") || v.says("checkhostip")):
			return v.no(keyword, "gorun's own client cannot obey that")
		case keyword == "pubkeyauthentication" && off,
			keyword == "preferredauthentications" && !slices.Contains(strings.Split(v.first(keyword), ","), "publickey"):
			return v.no(keyword, "gorun's own client knows public keys only")
		}
	}
	return nil
}
