package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// TLS says how connections are encrypted, by version 1.3. The zero TLS is good: a certificate that the
// Endpoint makes, which the token vouches for. All processes of a run have one alike.
type TLS struct {
	// Certificate is this process's. With one, listeners' certificates must be signed by Roots, whatever names they bear.
	Certificate *tls.Certificate
	Roots       *x509.CertPool // nil: the system's
	Mutual      bool           // whoever dials must show a certificate signed by Roots, too
}

// ReadTLS reads a certificate, its key, and those of the authorities from PEM files.
func ReadTLS(certificate, key, roots string) (*TLS, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("tcp: certificate %s with key %s: %w", certificate, key, err)
	}
	t := &TLS{Certificate: &pair}
	if roots == "" {
		return t, nil
	}
	text, err := os.ReadFile(roots)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	t.Roots = x509.NewCertPool()
	if !t.Roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tcp: %s has no certificate in PEM form", roots)
	}
	return t, nil
}

// sides is both roles of an Endpoint in TLS; nil is none of it.
type sides struct {
	listener, dialler *tls.Config
}

func (t *TLS) sides() (*sides, error) {
	if t == nil {
		return nil, nil
	}
	own := t.Certificate
	if own == nil {
		if t.Mutual || t.Roots != nil {
			return nil, errors.New("tcp: TLS with authorities, and without a certificate of this process's; give one")
		}
		made, err := made()
		if err != nil {
			return nil, fmt.Errorf("tcp: %w", err)
		}
		own = made
	}
	s := &sides{
		listener: &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true},
		dialler:  &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, // but for what follows
	}
	s.listener.Certificates = []tls.Certificate{*own}
	if t.Certificate != nil {
		s.dialler.VerifyConnection = func(c tls.ConnectionState) error { return isSigned(c.PeerCertificates, t.Roots) }
	}
	if t.Mutual {
		s.listener.ClientAuth, s.listener.ClientCAs = tls.RequireAndVerifyClientCert, t.Roots
		s.dialler.Certificates = []tls.Certificate{*own}
	}
	return s, nil
}

// isSigned refuses a listener's certificate that the authorities have not signed. It does not ask which name the
// certificate bears: processes reach each other by addresses that nobody knows when certificates are made. Which of
// the authorities' own is at the other end is for the proof of the token to say, which is over this channel.
func isSigned(shown []*x509.Certificate, roots *x509.CertPool) error {
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range shown[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := shown[0].Verify(o); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: shown, Err: err}
	}
	return nil
}

// made is a certificate that lasts as long as the process.
func made() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// listens has TLS begin on a connection that was accepted. channel is what nobody else's connection has.
func (s *sides) listens(raw net.Conn) (c net.Conn, channel []byte, err error) {
	if s == nil {
		return raw, make([]byte, channelBytes), nil
	}
	return channelOf(tls.Server(raw, s.listener))
}

// dials has TLS begin on a connection that was dialled.
func (s *sides) dials(raw net.Conn) (c net.Conn, channel []byte, err error) {
	if s == nil {
		return raw, make([]byte, channelBytes), nil
	}
	return channelOf(tls.Client(raw, s.dialler))
}

const channelBytes = 32

func channelOf(c *tls.Conn) (net.Conn, []byte, error) {
	if err := c.Handshake(); err != nil {
		return nil, nil, fmt.Errorf("TLS: %w", err)
	}
	state := c.ConnectionState()
	channel, err := state.ExportKeyingMaterial("EXPORTER-millrace-tcp", nil, channelBytes)
	if err != nil {
		return nil, nil, fmt.Errorf("TLS: %w", err)
	}
	return c, channel, nil
}

// Final says whether an error of Dial is one that no other try mends: who is there has another token, certificate or
// language. That it is of another run, or start of one, may change once that has ended.
func Final(err error) bool {
	var said *refused
	return final(err) && (!errors.As(err, &said) || said.code == notOne)
}

// final says whether an error of a handshake is one that comes again however often it is tried.
func final(err error) bool {
	var said *refused
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert *net.OpError
	return errors.As(err, &said) || errors.As(err, &certificate) || errors.As(err, &record) ||
		errors.As(err, &alert) && alert.Op == "remote error"
}
