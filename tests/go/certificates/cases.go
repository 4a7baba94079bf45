package main

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"slices"
	"time"
)

// testCase is the chain that a peer shows, and the authorities that the other side trusts.
type testCase struct {
	name  string
	roots []*cert
	chain []*cert
	// shown to Go and Rust in handshakes as well
	shake bool
}

// forms are end entities' certificates by form, which further conditions may change.
var forms = map[string]func(*spec){
	"v3":       func(*spec) {},
	"v1":       func(s *spec) { s.version1 = true },
	"no-CA":    func(s *spec) { s.basic = true },
	"CA":       func(s *spec) { s.basic, s.ca = true, true },
	"sign-key": func(s *spec) { s.basic, s.ca, s.keyUsage = true, true, x509.KeyUsageCertSign },
}

var formNames = []string{"v3", "v1", "no-CA", "CA", "sign-key"}

// conditions are changes to an authority's certificate, one at a time.
var conditions = []struct {
	name  string
	apply func(*spec)
}{
	{"plain", func(*spec) {}},
	{"v1", func(s *spec) { s.version1 = true }},
	{"no basic constraints", func(s *spec) { s.basic, s.ca = false, false }},
	{"basic constraints say no", func(s *spec) { s.ca = false }},
	{"path length 0", func(s *spec) { s.pathLen = -1 }},
	{"path length 1", func(s *spec) { s.pathLen = 1 }},
	{"usage server", func(s *spec) { s.usage = "server" }},
	{"usage client", func(s *spec) { s.usage = "client" }},
	{"usage both", func(s *spec) { s.usage = "both" }},
	{"usage any", func(s *spec) { s.usage = "any" }},
	{"usage other", func(s *spec) { s.usage = "other" }},
	{"usage unknown", func(s *spec) { s.usage = "unknown" }},
	{"unknown critical extension", func(s *spec) { s.critical = true }},
	{"unknown extension", func(s *spec) { s.harmless = true }},
	{"explicit policy", func(s *spec) { s.policyReq = true }},
	{"expired", func(s *spec) { s.from, s.to = -48*time.Hour, -time.Hour }},
	{"not yet valid", func(s *spec) { s.from = time.Hour }},
	{"no key usage", func(s *spec) { s.keyUsage = 0 }},
	{"key usage without signing", func(s *spec) { s.keyUsage = x509.KeyUsageDigitalSignature }},
	{"SHA-1", func(s *spec) { s.sha1 = true }},
	{"P-384", func(s *spec) { s.key = "P-384" }},
	{"P-521", func(s *spec) { s.key = "P-521" }},
	{"RSA-1024", func(s *spec) { s.key = "RSA-1024" }},
	{"RSA-2048", func(s *spec) { s.key = "RSA-2048" }},
	{"Ed25519", func(s *spec) { s.key = "Ed25519" }},
	{"names that fit", func(s *spec) {
		s.change = func(c *x509.Certificate) {
			c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"example.org"}, true
		}
	}},
	{"names that do not fit", func(s *spec) {
		s.change = func(c *x509.Certificate) {
			c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"example.com"}, true
		}
	}},
	{"names excluded", func(s *spec) {
		s.change = func(c *x509.Certificate) { c.ExcludedDNSDomains = []string{"example.org"} }
	}},
	{"URIs that fit", func(s *spec) {
		s.change = func(c *x509.Certificate) { c.PermittedURIDomains = []string{"cluster"} }
	}},
	{"URIs that do not fit", func(s *spec) {
		s.change = func(c *x509.Certificate) { c.PermittedURIDomains = []string{"elsewhere"} }
	}},
	{"URIs excluded", func(s *spec) {
		s.change = func(c *x509.Certificate) { c.ExcludedURIDomains = []string{"cluster"} }
	}},
	{"addresses of mail permitted", func(s *spec) {
		s.change = func(c *x509.Certificate) {
			c.PermittedEmailAddresses, c.PermittedDNSDomainsCritical = []string{"example.org"}, true
		}
	}},
	{"directory names", func(s *spec) { s.change = constrained(4, false) }},
	{"directory names, critical", func(s *spec) { s.change = constrained(4, true) }},
	{"names of other kinds, critical", func(s *spec) { s.change = constrained(8, true) }},
	{"critical policies", func(s *spec) {
		s.change = func(c *x509.Certificate) {
			policies := must(asn1.Marshal([]struct{ Policy asn1.ObjectIdentifier }{{asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 9}}}))
			c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 32}, Critical: true, Value: policies})
		}
	}},
}

// constrained adds name constraints for a kind of name that Go does not know, by its tag: 4 directory names, 8 registered numbers.
func constrained(tag int, critical bool) func(*x509.Certificate) {
	name := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: []byte{42, 3}}
	if tag == 4 {
		name.IsCompound, name.Bytes = true, must(asn1.Marshal(pkix.Name{CommonName: "elsewhere"}.ToRDNSequence()))
	}
	type subtree struct{ Base asn1.RawValue }
	value := must(asn1.Marshal(struct {
		Permitted []subtree `asn1:"tag:0"`
	}{[]subtree{{name}}}))
	return func(c *x509.Certificate) {
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 30}, Critical: critical, Value: value})
	}
}

func leaf(form string, change func(*spec)) spec {
	s := spec{name: "peer", uris: []string{"spiffe://cluster/peer"}, hosts: []string{"peer.example.org"}}
	forms[form](&s)
	if change != nil {
		change(&s)
	}
	return s
}

func matrix() []testCase {
	var cases []testCase
	add := func(shake bool, name string, roots, chain []*cert) {
		cases = append(cases, testCase{name, roots, chain, shake})
	}
	list := func(certs ...*cert) []*cert { return certs }

	root := authority("root").issue(nil)
	foreign := func() spec { s := authority("root"); s.which = "foreign"; return s }().issue(nil)
	middle := authority("middle").issue(root)
	lower := authority("lower").issue(middle)
	stranger := authority("stranger").issue(nil)

	// Conditions of end entities' certificates, below one authority and below two.
	leafConditions := slices.Clone(conditions)
	for _, form := range formNames {
		for _, condition := range leafConditions {
			s := leaf(form, condition.apply)
			if form == "v1" {
				s.version1 = true
			}
			name := fmt.Sprintf("leaf %s: %s", form, condition.name)
			shake := slices.Contains([]string{"plain", "expired", "P-384", "P-521", "RSA-1024", "RSA-2048", "Ed25519"}, condition.name)
			add(shake, name, list(root), list(s.issue(root)))
			add(false, name+", behind a sent authority", list(root), list(s.issue(middle), middle))
			listed := s.issue(root)
			add(false, name+", listed", list(listed), list(listed))
			self := s.issue(nil)
			add(false, name+", self-issued and listed", list(self), list(self))
		}
	}

	// Ways to a trusted authority.
	crossed := func() spec { s := authority("middle"); return s }().issue(stranger) // middle's key, by another authority
	newRoot := authority("new root").issue(nil)
	newByOld := authority("new root").issue(root)
	belowNew := authority("below new").issue(newRoot)
	loopA := authority("loop a")
	loopB := authority("loop b")
	loopBSelf := loopB.issue(nil)
	loopAByB := loopA.issue(loopBSelf)
	loopBByA := loopB.issue(loopAByB)
	for _, form := range formNames {
		for _, usage := range []string{"none", "server", "client"} {
			make := func(issuer *cert) *cert { return leaf(form, func(s *spec) { s.usage = usage }).issue(issuer) }
			way := func(shake bool, name string, roots, chain []*cert) {
				add(shake && usage == "none", fmt.Sprintf("way %s, leaf %s for %s", name, form, usage), roots, chain)
			}
			one, two, three := make(root), make(middle), make(lower)
			way(true, "direct", list(root), list(one))
			way(false, "direct, authority sent as well", list(root), list(one, root))
			way(false, "direct, others listed as well", list(stranger, foreign, root), list(one))
			way(true, "of a foreign authority with the same name", list(foreign), list(one))
			way(false, "of nobody known", list(stranger), list(one))
			way(false, "self-issued, unknown", list(root), list(make(nil)))
			way(true, "authority sent", list(root), list(two, middle))
			way(true, "authority listed", list(root, middle), list(two))
			way(false, "authority listed, other order", list(middle, root), list(two))
			way(false, "authority listed and sent", list(root, middle), list(two, middle))
			way(true, "authority listed without its own", list(middle), list(two))
			way(false, "authority listed without its own, and sent", list(middle), list(two, middle))
			way(true, "authority neither listed nor sent", list(root), list(two))
			way(true, "two sent", list(root), list(three, lower, middle))
			way(true, "two sent, order mixed", list(root), list(three, middle, lower))
			way(false, "two sent, others between", list(root), list(three, stranger, middle, foreign, lower))
			way(false, "one sent, one listed", list(root, middle), list(three, lower))
			way(false, "one sent, one listed, the other way", list(root, lower), list(three, middle))
			way(false, "one of two missing", list(root), list(three, lower))
			way(false, "cross-signed, the trusted one first", list(root), list(two, middle, crossed))
			way(true, "cross-signed, the trusted one last", list(root), list(two, crossed, middle))
			way(false, "cross-signed, by the other", list(stranger), list(two, middle, crossed))
			way(false, "cross-signed root", list(root), list(make(newRoot), newByOld))
			way(false, "below a cross-signed root", list(root), list(make(belowNew), belowNew, newRoot, newByOld))
			way(false, "a loop", list(root), list(make(loopBByA), loopBByA, loopAByB))
			way(false, "a loop with a way out", list(loopBSelf), list(make(loopBByA), loopBByA, loopAByB))
		}
	}

	// Conditions of authorities' certificates, in every place.
	for _, condition := range conditions {
		top := authority("root of " + condition.name)
		condition.apply(&top)
		topCert := top.issue(nil)
		below := authority("below it").issue(topCert)
		in := authority("inner")
		condition.apply(&in)
		inner := in.issue(root)
		innerLow := authority("below inner").issue(inner)
		for _, form := range []string{"v3", "v1", "CA"} {
			for _, usage := range []string{"none", "both"} {
				make := func(issuer *cert) *cert {
					return leaf(form, func(s *spec) { s.usage, s.sha256 = usage, false }).issue(issuer)
				}
				put := func(where string, roots, chain []*cert) {
					shake := form == "v3" && usage == "none" && (where == "root" || where == "sent")
					add(shake, fmt.Sprintf("authority %s, %s, leaf %s for %s", where, condition.name, form, usage), roots, chain)
				}
				put("root", list(topCert), list(make(topCert)))
				put("root of two", list(topCert), list(make(below), below))
				put("root among others", list(root, topCert), list(make(topCert)))
				put("sent", list(root), list(make(inner), inner))
				put("sent, upper", list(root), list(make(innerLow), innerLow, inner))
				put("listed", list(root, inner), list(make(inner)))
				put("listed alone", list(inner), list(make(inner)))
				put("listed and sent", list(root, inner), list(make(inner), inner))
			}
		}
	}

	// Listed certificates of end entities, and certificates signed by them.
	for _, form := range formNames {
		for _, self := range []bool{false, true} {
			issuer := root
			if self {
				issuer = nil
			}
			s := leaf(form, func(s *spec) { s.name = "listed" })
			listed := s.issue(issuer)
			signed := leaf("v3", nil).issue(listed)
			old := leaf("v1", nil).issue(listed)
			name := fmt.Sprintf("signed by a listed %s, self-issued: %t", form, self)
			add(true, name, list(listed), list(signed))
			add(false, name+", v1", list(listed), list(old))
			add(false, name+", sent as well", list(listed), list(signed, listed))
			add(false, name+", not listed", list(root), list(signed, listed))
		}
	}
	weak := leaf("v3", func(s *spec) { s.sha1 = true })
	add(true, "SHA-1 under the leaf", list(root), list(weak.issue(root)))
	rsaRoot := func() spec { s := authority("RSA root"); s.key = "RSA-2048"; return s }().issue(nil)
	add(true, "SHA-1 and RSA under the leaf", list(rsaRoot), list(weak.issue(rsaRoot)))
	add(true, "SHA-512 under the leaf", list(root), list(leaf("v3", func(s *spec) {
		s.change = func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA512 }
	}).issue(root)))
	// Few cases: long keys take long.
	longRoot := func() spec { s := authority("long root"); s.key = "RSA-4096"; return s }().issue(nil)
	add(true, "RSA-4096 under the leaf", list(longRoot), list(leaf("v3", nil).issue(longRoot)))
	add(true, "RSA-4096 of the leaf", list(root), list(leaf("v3", func(s *spec) { s.key = "RSA-4096" }).issue(root)))
	add(true, "RSA-PSS under the leaf", list(rsaRoot), list(leaf("v3", func(s *spec) { s.pss = true }).issue(rsaRoot)))
	add(false, "RSA-PSS under a v1 leaf", list(rsaRoot), list(leaf("CA", func(s *spec) { s.pss = true }).issue(rsaRoot)))
	return cases
}

// nameCase is a certificate and the names that are wanted of it.
type nameCase struct {
	name, wantedCN, wantedURI string
	subject                   pkix.Name
	uris, hosts               []string
}

func nameCases() []nameCase {
	var cases []nameCase
	cn := asn1.ObjectIdentifier{2, 5, 4, 3}
	subjects := map[string]pkix.Name{
		"plain":        {CommonName: "typha-client"},
		"upper case":   {CommonName: "TYPHA-CLIENT"},
		"with a space": {CommonName: "typha-client "},
		"none":         {Organization: []string{"typha-client"}},
		"wildcard":     {CommonName: "*"},
		"umlaut":       {CommonName: "typha-clïent"},
		"last of two": {ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: cn, Value: "other"}, {Type: cn, Value: "typha-client"}}},
		"first of two": {ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: cn, Value: "typha-client"}, {Type: cn, Value: "other"}}},
	}
	uris := map[string][]string{
		"none": nil, "plain": {"spiffe://cluster/client"}, "second": {"spiffe://other", "spiffe://cluster/client"},
		"other": {"spiffe://other"}, "wildcard": {"spiffe://cluster/*"}, "upper case": {"SPIFFE://cluster/client"},
	}
	for subject, name := range subjects {
		for uri, list := range uris {
			for _, wanted := range [][2]string{
				{"typha-client", ""}, {"", "spiffe://cluster/client"}, {"typha-client", "spiffe://cluster/client"},
				{"typha-clïent", ""}, {"client.example.org", ""}, {"", "SPIFFE://cluster/client"},
			} {
				label := fmt.Sprintf("name %s, URI %s, wanted %q %q", subject, uri, wanted[0], wanted[1])
				cases = append(cases, nameCase{label, wanted[0], wanted[1], name, list, []string{"client.example.org", "*.example.org"}})
			}
		}
	}
	return cases
}
