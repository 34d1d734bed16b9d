package wiretest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewAuthority makes an authority that no system trusts.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	c := certificate(1, "authority")
	c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	a := &Authority{key: newKey(t), cert: c}
	var err error
	if a.cert, err = x509.ParseCertificate(a.sign(t, c, &a.key.PublicKey)); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certificate(number int64, name string) *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
}

func (a *Authority) sign(t testing.TB, c *x509.Certificate, key *ecdsa.PublicKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Roots returns a pool with this authority only.
func (a *Authority) Roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return roots
}

// Signed returns a certificate for a host, valid for both sides of a connection.
func (a *Authority) Signed(t testing.TB, host string) tls.Certificate {
	t.Helper()
	key, c := newKey(t), certificate(2, host)
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if ip := net.ParseIP(host); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{host}
	}
	return tls.Certificate{Certificate: [][]byte{a.sign(t, c, &key.PublicKey)}, PrivateKey: key}
}

// Files writes a host's certificate, its key and the authority's certificate to a folder, as PEM.
func (a *Authority) Files(t testing.TB, dir, host string) (certificate, key, roots string) {
	t.Helper()
	pair := a.Signed(t, host)
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("certificate.pem", "CERTIFICATE", pair.Certificate[0]), write("key.pem", "PRIVATE KEY", der),
		write("roots.pem", "CERTIFICATE", a.cert.Raw)
}
