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
	unknown class = iota // where a file has it, for the system's ssh
	obeyed
	without // of no effect on what gorun does
	system  // for the system's ssh, unless it is off
)

var keywords = map[class]string{
	obeyed: `AddressFamily BatchMode CanonicalDomains CanonicalizeFallbackLocal CanonicalizeHostname
		CanonicalizeMaxDots CanonicalizePermittedCNAMEs CASignatureAlgorithms CertificateFile CheckHostIP Ciphers
		ConnectTimeout GlobalKnownHostsFile HashKnownHosts Host HostKeyAlgorithms HostKeyAlias HostName
		IdentitiesOnly IdentityAgent IdentityFile IgnoreUnknown Include KexAlgorithms MACs Match
		NoHostAuthenticationForLocalhost Port PreferredAuthentications ProxyCommand ProxyJump
		PubkeyAcceptedAlgorithms PubkeyAcceptedKeyTypes PubkeyAuthentication RequiredRSASize
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
	system: `BindAddress BindInterface KnownHostsCommand ProxyUseFdpass RefuseConnection RevokedHostKeys
		VerifyHostKeyDNS`,
}

// classes and spelling are by keyword in lower case.
var classes, spelling = func() (map[string]class, map[string]string) {
	classes, spelling := map[string]class{"host": obeyed, inOrder: obeyed}, map[string]string{}
	for class, list := range keywords {
		for _, keyword := range strings.Fields(list) {
			classes[strings.ToLower(keyword)], spelling[strings.ToLower(keyword)] = class, keyword
		}
	}
	return classes, spelling
}()

// renamed has the present names of keywords that older releases print.
var renamed = map[string]string{"pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms", "rsaminsize": "requiredrsasize"}

// needsSystem is why gorun's own client must not log in: a keyword, in lower case, that it cannot obey and OpenSSH's client can.
type needsSystem string

func (keyword needsSystem) Error() string {
	return fmt.Sprintf("this %s needs OpenSSH's client", cmp.Or(spelling[string(keyword)], string(keyword)))
}

// obeyable returns needsSystem if gorun's own client must not log in as the values have it.
func (v values) obeyable() error {
	for _, keyword := range slices.Sorted(maps.Keys(v)) {
		said := strings.ToLower(v.first(keyword))
		on := !slices.Contains([]string{"", "no", "false"}, said)
		switch {
		case classes[keyword] == unknown, classes[keyword] == system && on, keyword == "pubkeyauthentication" && !on,
			keyword == "preferredauthentications" && !slices.Contains(strings.Split(v.first(keyword), ","), "publickey"):
			return needsSystem(keyword)
		}
	}
	return nil
}
