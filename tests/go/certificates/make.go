package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net/url"
	"strings"
	"sync"
	"time"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Keys by kind and number, made once.
var keys = struct {
	sync.Mutex
	made map[string]crypto.Signer
}{made: map[string]crypto.Signer{}}

// key returns a key. kind is one of the names below; which tells several keys of a kind apart, except for RSA.
func key(kind, which string) crypto.Signer {
	if strings.HasPrefix(kind, "RSA") {
		which = "" // they take long to make
	}
	name := kind + " " + which
	keys.Lock()
	defer keys.Unlock()
	if made, ok := keys.made[name]; ok {
		return made
	}
	var made crypto.Signer
	switch kind {
	case "P-256":
		made = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	case "P-384":
		made = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	case "P-521":
		made = must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	case "RSA-1024":
		made = must(rsa.GenerateKey(rand.Reader, 1024))
	case "RSA-2048":
		made = must(rsa.GenerateKey(rand.Reader, 2048))
	case "RSA-4096":
		// Of four primes, which are found faster than two; otherwise it makes no difference.
		made = must(rsa.GenerateMultiPrimeKey(rand.Reader, 4, 4096))
	case "Ed25519":
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			panic(err)
		}
		made = private
	default:
		panic("no such kind of key: " + kind)
	}
	keys.made[name] = made
	return made
}

var (
	now    = time.Now()
	serial = big.NewInt(1)
	// Extended key usages by name; "unknown" is an unknown usage.
	usages = map[string][]x509.ExtKeyUsage{
		"none": nil, "unknown": nil,
		"server": {x509.ExtKeyUsageServerAuth},
		"client": {x509.ExtKeyUsageClientAuth},
		"both":   {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		"any":    {x509.ExtKeyUsageAny},
		"other":  {x509.ExtKeyUsageCodeSigning},
	}
)

// spec describes a certificate. The zero value is an X.509 v3 end entity's, valid now, without extensions.
type spec struct {
	name      string // common name of the subject
	key       string // kind of its key
	which     string // tells keys of a kind apart, empty: name
	version1  bool
	basic     bool // has basic constraints
	ca        bool // which say CA
	pathLen   int  // 0: none, -1: zero
	usage     string
	keyUsage  x509.KeyUsage
	from, to  time.Duration // from now; zero: a day ago and a day ahead
	sha1      bool
	pss       bool
	sha256    bool // instead of the hash that goes with the signer's key
	uris      []string
	hosts     []string
	subject   *pkix.Name
	change    func(*x509.Certificate)
	critical  bool // has an unknown critical extension
	harmless  bool // has an unknown extension that is not critical
	policyReq bool
}

// authority is the spec of a certificate that may sign.
func authority(name string) spec {
	return spec{name: name, key: "P-256", basic: true, ca: true, keyUsage: x509.KeyUsageCertSign}
}

// cert is a certificate and its key.
type cert struct {
	der    []byte
	parsed *x509.Certificate
	key    crypto.Signer
}

func (s spec) subjectName() pkix.Name {
	if s.subject != nil {
		return *s.subject
	}
	return pkix.Name{CommonName: s.name}
}

// issue makes the certificate, signed by issuer, or by itself if that is nil.
func (s spec) issue(issuer *cert) *cert {
	if s.key == "" {
		s.key = "P-256"
	}
	if s.which == "" {
		s.which = s.name
	}
	if s.from == 0 {
		s.from = -24 * time.Hour
	}
	if s.to == 0 {
		s.to = 24 * time.Hour
	}
	serial = new(big.Int).Add(serial, big.NewInt(1))
	template := &x509.Certificate{
		SerialNumber: serial, Subject: s.subjectName(), NotBefore: now.Add(s.from), NotAfter: now.Add(s.to),
		BasicConstraintsValid: s.basic, IsCA: s.ca, KeyUsage: s.keyUsage, ExtKeyUsage: usages[s.usage], DNSNames: s.hosts,
	}
	if s.usage == "unknown" {
		template.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 3, 6, 1, 4, 1, 99999, 1}}
	}
	switch {
	case !s.ca: // a path length is an authority's
	case s.pathLen > 0:
		template.MaxPathLen = s.pathLen
	case s.pathLen < 0:
		template.MaxPathLenZero = true
	}
	for _, uri := range s.uris {
		template.URIs = append(template.URIs, must(url.Parse(uri)))
	}
	extension := func(last int, critical bool) {
		template.ExtraExtensions = append(template.ExtraExtensions,
			pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, last}, Critical: critical, Value: []byte{5, 0}})
	}
	if s.critical {
		extension(2, true)
	}
	if s.harmless {
		extension(3, false)
	}
	if s.policyReq { // RFC 5280, 4.2.1.11: requireExplicitPolicy 0
		template.ExtraExtensions = append(template.ExtraExtensions,
			pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 36}, Critical: true, Value: []byte{0x30, 3, 0x80, 1, 0}})
	}
	if s.change != nil {
		s.change(template)
	}
	own := key(s.key, s.which)
	signer, parent := own, template
	if issuer != nil {
		signer, parent = issuer.key, issuer.parsed
	}
	if s.pss {
		template.SignatureAlgorithm = x509.SHA256WithRSAPSS
	}
	if _, isEC := signer.(*ecdsa.PrivateKey); isEC && (s.version1 || s.sha256) {
		template.SignatureAlgorithm = x509.ECDSAWithSHA256
	}
	der := must(x509.CreateCertificate(rand.Reader, template, withoutConditions(parent), own.Public(), signer))
	if s.version1 || s.sha1 {
		der = again(der, signer, s.version1, s.sha1)
	}
	return &cert{der, must(x509.ParseCertificate(der)), own}
}

// withoutConditions is the parent for the library: with a subject, and without fields that the library would refuse.
func withoutConditions(parent *x509.Certificate) *x509.Certificate {
	return &x509.Certificate{Subject: parent.Subject, RawSubject: parent.RawSubject, SubjectKeyId: parent.SubjectKeyId}
}

// again signs a certificate once more, as version 1 (no version, no extensions), by SHA-1, or both.
func again(der []byte, signer crypto.Signer, version1, weak bool) []byte {
	var whole struct {
		Signed    asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	must(asn1.Unmarshal(der, &whole))
	algorithm, hash := whole.Algorithm, crypto.SHA256
	if weak {
		hash = crypto.SHA1
		if _, isRSA := signer.(*rsa.PrivateKey); isRSA {
			algorithm = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 5}, Parameters: asn1.NullRawValue}
		} else {
			algorithm = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 1}}
		}
	}
	var kept []byte
	field := 0
	for rest := whole.Signed.Bytes; len(rest) > 0; {
		var value asn1.RawValue
		rest = must(asn1.Unmarshal(rest, &value))
		switch {
		case value.Class == asn1.ClassContextSpecific:
			if !version1 {
				kept = append(kept, value.FullBytes...)
			}
			continue
		case field == 1: // serial number, algorithm, ...
			kept = append(kept, must(asn1.Marshal(algorithm))...)
		default:
			kept = append(kept, value.FullBytes...)
		}
		field++
	}
	signed := must(asn1.Marshal(asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagSequence, IsCompound: true, Bytes: kept}))
	var digest []byte
	if hash == crypto.SHA1 {
		sum := sha1.Sum(signed)
		digest = sum[:]
	} else {
		sum := sha256.Sum256(signed)
		digest = sum[:]
	}
	if _, isEd := signer.(ed25519.PrivateKey); isEd {
		digest, hash = signed, crypto.Hash(0)
	}
	signature := must(signer.Sign(rand.Reader, digest, hash))
	whole.Signed = asn1.RawValue{FullBytes: signed}
	whole.Algorithm = algorithm
	whole.Signature = asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}
	return must(asn1.Marshal(whole))
}
