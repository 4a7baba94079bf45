// Go's crypto/tls's verdicts on certificates, for a test that compares them with Bulrush's.
//
//	certificates matrix   prints cases, a JSON object in each line: certificates, and Go's verdict on them in both roles
//	certificates peer     reads a JSON object from each line of its input, takes part in one handshake, prints how it ended
//
// Certificates and keys are made anew at each start; only the standard streams and loopback are used.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// line is a case on its way to the test.
type line struct {
	Name      string   `json:"name"`
	Roots     [][]byte `json:"roots"`
	Chain     [][]byte `json:"chain"`
	Key       []byte   `json:"key"`
	Handshake bool     `json:"handshake"`
	// Reasons for which Go refuses such a client or server; empty: it accepts.
	Client string `json:"client"`
	Server string `json:"server"`
	// Wanted names; only in cases about names.
	WantedCN  string `json:"wanted_cn,omitempty"`
	WantedURI string `json:"wanted_uri,omitempty"`
	Fits      bool   `json:"fits"`
}

func bytesOf(certs []*cert) [][]byte {
	var all [][]byte
	for _, c := range certs {
		all = append(all, c.der)
	}
	return all
}

// verdict checks a peer's certificates as crypto/tls does, before the signatures of the handshake.
func verdict(roots, chain [][]byte, usage x509.ExtKeyUsage) string {
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage},
	}
	for _, der := range roots {
		if parsed, err := x509.ParseCertificate(der); err == nil {
			options.Roots.AddCert(parsed)
		}
	}
	var leaf *x509.Certificate
	for _, der := range chain {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return err.Error()
		}
		if leaf == nil {
			leaf = parsed
		} else {
			options.Intermediates.AddCert(parsed)
		}
	}
	if _, err := leaf.Verify(options); err != nil {
		return err.Error()
	}
	return ""
}

func printMatrix() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for _, c := range matrix() {
		l := line{Name: c.name, Roots: bytesOf(c.roots), Chain: bytesOf(c.chain), Handshake: c.shake}
		l.Key = must(x509.MarshalPKCS8PrivateKey(c.chain[0].key))
		l.Client = verdict(l.Roots, l.Chain, x509.ExtKeyUsageClientAuth)
		l.Server = verdict(l.Roots, l.Chain, x509.ExtKeyUsageServerAuth)
		if err := encoder.Encode(l); err != nil {
			panic(err)
		}
	}
	root := authority("root").issue(nil)
	for _, c := range nameCases() {
		made := spec{name: "named", subject: &c.subject, uris: c.uris, hosts: c.hosts}.issue(root)
		l := line{Name: c.name, Chain: [][]byte{made.der}, WantedCN: c.wantedCN, WantedURI: c.wantedURI}
		// Calico's rule: if two names are wanted, either will do; if one is wanted, it must fit.
		l.Fits = c.wantedCN != "" && made.parsed.Subject.CommonName == c.wantedCN
		for _, uri := range made.parsed.URIs {
			l.Fits = l.Fits || c.wantedURI != "" && uri.String() == c.wantedURI
		}
		if err := encoder.Encode(l); err != nil {
			panic(err)
		}
	}
}

// order describes a handshake to take part in.
type order struct {
	// Server to connect to as a client; empty: listen, and print the address first.
	Address string   `json:"address"`
	Chain   [][]byte `json:"chain"`
	Key     []byte   `json:"key"`
	TLS12   bool     `json:"tls12"`
}

const patience = 10 * time.Second

func (o order) config() (*tls.Config, error) {
	key, err := x509.ParsePKCS8PrivateKey(o.Key)
	if err != nil {
		return nil, err
	}
	shown := tls.Certificate{Certificate: o.Chain, PrivateKey: key}
	config := &tls.Config{
		// The certificate is shown whatever the other side trusts, and the other side's certificate is accepted: only its
		// verdict is of interest.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil },
		Certificates:         []tls.Certificate{shown},
		InsecureSkipVerify:   true,
		ClientAuth:           tls.RequireAnyClientCert,
	}
	if o.TLS12 {
		config.MaxVersion = tls.VersionTLS12
	}
	return config, nil
}

func (o order) follow(out io.Writer) error {
	config, err := o.config()
	if err != nil {
		return err
	}
	var conn *tls.Conn
	if o.Address != "" {
		plain, err := net.DialTimeout("tcp", o.Address, patience)
		if err != nil {
			return err
		}
		defer plain.Close()
		conn = tls.Client(plain, config)
	} else {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		fmt.Fprintln(out, string(must(json.Marshal(listener.Addr().String()))))
		plain, err := listener.Accept()
		if err != nil {
			return err
		}
		defer plain.Close()
		conn = tls.Server(plain, config)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := conn.Handshake(); err != nil {
		return err
	}
	if o.Address == "" {
		_, err := conn.Write([]byte("hello"))
		return err
	}
	// Under TLS 1.3 only the server's next message shows that it has accepted us.
	_, err = io.ReadFull(conn, make([]byte, 5))
	return err
}

func peer() error {
	in := bufio.NewReader(os.Stdin)
	for {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var o order
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		outcome := ""
		if err := o.follow(os.Stdout); err != nil {
			outcome = err.Error()
		}
		fmt.Println(string(must(json.Marshal(outcome))))
	}
}

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "matrix":
		printMatrix()
	case len(os.Args) == 2 && os.Args[1] == "peer":
		err = peer()
	default:
		err = errors.New("usage: certificates matrix|peer")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "certificates:", err)
		os.Exit(1)
	}
}
