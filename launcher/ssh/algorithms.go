package ssh

import (
	"crypto/fips140"
	"crypto/rsa"
	"slices"
	"strconv"
	"strings"

	gossh "golang.org/x/crypto/ssh"
)

// hostKeyAlgorithms is OpenSSH's order of preference, for a machine that does not have it.
var hostKeyAlgorithms = []string{
	gossh.CertAlgoED25519v01, gossh.CertAlgoECDSA256v01, gossh.CertAlgoECDSA384v01, gossh.CertAlgoECDSA521v01,
	gossh.CertAlgoRSASHA512v01, gossh.CertAlgoRSASHA256v01,
	gossh.KeyAlgoED25519, gossh.KeyAlgoECDSA256, gossh.KeyAlgoECDSA384, gossh.KeyAlgoECDSA521,
	gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256,
}

// approved are the algorithms of the ssh library that work in FIPS 140-only mode (GODEBUG=fips140=only). By itself the
// library also offers X25519, and AES-GCM with nonces of its own, which this mode refuses.
var approved = gossh.Config{
	KeyExchanges: []string{gossh.KeyExchangeECDHP256, gossh.KeyExchangeECDHP384, gossh.KeyExchangeECDHP521},
	Ciphers:      []string{gossh.CipherAES128CTR, gossh.CipherAES192CTR, gossh.CipherAES256CTR},
}

// limitAlgorithms takes from each list of ssh_config what gorun knows, and prefers what is fast.
func (s *settings) limitAlgorithms() error {
	var none error // or needsSystem, if gorun knows nothing of a list
	take := func(keyword string, ours ...string) []string {
		if s.values[keyword] == nil {
			return nil
		}
		list := strings.Split(s.values.first(keyword), ",")
		both := slices.DeleteFunc(ours, func(a string) bool { return !slices.Contains(list, a) })
		if len(both) == 0 {
			none = needsSystem(keyword)
		}
		return both
	}
	good, poor := gossh.SupportedAlgorithms(), gossh.InsecureAlgorithms()
	good.KeyExchanges = append([]string{"curve25519-sha256@libssh.org"}, good.KeyExchanges...) // an older name
	if fips140.Enforced() {
		good.KeyExchanges, good.Ciphers = slices.Clone(approved.KeyExchanges), slices.Clone(approved.Ciphers)
		poor = gossh.Algorithms{}
		s.transport = approved
	}
	if list := take("kexalgorithms", append(good.KeyExchanges, poor.KeyExchanges...)...); list != nil {
		s.transport.KeyExchanges = list
	}
	if list := take("ciphers", append(good.Ciphers, poor.Ciphers...)...); list != nil {
		s.transport.Ciphers = list
	}
	s.transport.MACs = take("macs", append(good.MACs, poor.MACs...)...)
	if said := s.values["pubkeyacceptedalgorithms"]; said != nil {
		s.userKeys = strings.Split(said[0], ",")
	}
	s.authorities = take("casignaturealgorithms", append(good.PublicKeyAuths, poor.PublicKeyAuths...)...)
	s.minRSA, _ = strconv.Atoi(s.values.first("requiredrsasize"))
	s.hostKeys = hostKeyAlgorithms
	if both := take("hostkeyalgorithms", append(good.HostKeys, poor.HostKeys...)...); both != nil {
		theirs := strings.Split(s.values.first("hostkeyalgorithms"), ",")
		s.hostKeys = slices.DeleteFunc(theirs, func(a string) bool { return !slices.Contains(both, a) })
	}
	return none
}

// plainType returns the type of the keys that an algorithm takes, and whether in a certificate. A type is an algorithm.
func plainType(algorithm string) (keyType string, certificate bool) {
	keyType, certificate = strings.CutSuffix(algorithm, "-cert-v01@openssh.com")
	if certificate && strings.HasPrefix(keyType, "sk-") {
		keyType += "@openssh.com"
	}
	if strings.HasPrefix(keyType, "rsa-sha2-") {
		keyType = gossh.KeyAlgoRSA
	}
	return keyType, certificate
}

// allow returns a signer limited to some algorithms, nil if none of them is for its key.
func allow(signer gossh.Signer, algorithms []string) gossh.Signer {
	some, ok := signer.(gossh.AlgorithmSigner)
	if algorithms == nil || !ok {
		return signer
	}
	keyType, certificate := plainType(signer.PublicKey().Type())
	var sign []string
	for _, a := range algorithms {
		if t, cert := plainType(a); t != keyType || cert != certificate {
			continue
		} else if t != gossh.KeyAlgoRSA {
			a = t
		}
		sign = append(sign, strings.TrimSuffix(a, "-cert-v01@openssh.com"))
	}
	limited, err := gossh.NewSignerWithAlgorithms(some, sign)
	if err != nil {
		return nil
	}
	return limited
}

// shortRSA reports whether a key is of RSA and has too few bits.
func shortRSA(key gossh.PublicKey, bits int) bool {
	if cert, ok := key.(*gossh.Certificate); ok {
		key = cert.Key
	}
	crypto, ok := key.(gossh.CryptoPublicKey)
	if !ok {
		return false
	}
	public, ok := crypto.CryptoPublicKey().(*rsa.PublicKey)
	return ok && public.N.BitLen() < bits
}
