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

// TLS says how connections are encrypted, with version 1.3. The zero TLS is usable: the Endpoint then makes a
// certificate, and the token proves whose certificate it is. All processes of a run need settings of the same kind.
type TLS struct {
	// Certificate is this process's own certificate. If it is set, the certificates of listeners must be signed by
	// Roots. Their names are not checked.
	Certificate *tls.Certificate
	Roots       *x509.CertPool // nil: the system's authorities
	Mutual      bool           // the dialler must also show a certificate signed by Roots
}

// ReadTLS reads a certificate, its key, and the authorities' certificates from PEM files.
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

// sides holds an Endpoint's TLS settings for both roles. A nil *sides means no TLS.
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
		dialler:  &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, // checked below instead
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

// isSigned refuses a listener's certificate that the authorities have not signed. It does not check names, since
// processes reach each other by addresses that are unknown when certificates are made. The proof of the token, which
// covers this TLS channel, identifies the other end.
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

// made makes a certificate for the life of the process.
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

// listens starts TLS on an accepted connection. `channel` is a value that only the two ends of this TLS connection
// know.
func (s *sides) listens(raw net.Conn) (c net.Conn, channel []byte, err error) {
	if s == nil {
		return raw, make([]byte, channelBytes), nil
	}
	return channelOf(tls.Server(raw, s.listener))
}

// dials starts TLS on a dialled connection.
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

// Final says whether retrying Dial is useless after this error. That is so if the other end has another token or does
// not speak this protocol, or if one end rejects the other's certificate. A refusal by another run, or another start of
// this run, is not final, since that run may end.
func Final(err error) bool {
	var said *refused
	return final(err) && (!errors.As(err, &said) || said.code == notOne)
}

// final says whether every further attempt at the handshake would fail with the same error.
func final(err error) bool {
	var said *refused
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert *net.OpError
	return errors.As(err, &said) || errors.As(err, &certificate) || errors.As(err, &record) ||
		errors.As(err, &alert) && alert.Op == "remote error"
}
