package together

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/launch"
)

// certificate writes files of a certificate for names alone, of its key, and of the authority that has signed it.
func certificate(t *testing.T, names ...string) *launch.TLS {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	own, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	since, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: since, NotAfter: until, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	one := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: since, NotAfter: until, DNSNames: names,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	roots, err := x509.CreateCertificate(rand.Reader, ca, ca, &authority.PublicKey, authority)
	as := &launch.TLS{Roots: write("ca.pem", "CERTIFICATE", roots, err)}
	signed, err := x509.CreateCertificate(rand.Reader, one, ca, &own.PublicKey, authority)
	as.Certificate = write("cert.pem", "CERTIFICATE", signed, err)
	key, err := x509.MarshalECPrivateKey(own)
	as.Key = write("key.pem", "EC PRIVATE KEY", key, err)
	return as
}

// Processes whose certificates bear a name, as a site's do, meet by that name, and reach each other by addresses that
// no certificate bears.
func TestCertificatesOfNames(t *testing.T) {
	t.Setenv("MILLRACE_TEST_TOKEN", "what all processes of the run know")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(free.Addr().String())
	port, err := strconv.Atoi(text)
	if err = errors.Join(err, free.Close()); err != nil {
		t.Fatal(err)
	}
	shown := certificate(t, "localhost")
	parties := make([]*Party, 2)
	var all sync.WaitGroup
	for rank := range parties {
		all.Go(func() {
			w := &launch.World{Rank: rank, Size: 2, LocalRank: rank, LocalSize: 2, Address: "localhost", Port: port,
				Token: launch.Token{Variable: "MILLRACE_TEST_TOKEN"}, TLS: shown, Wait: 20 * time.Second}
			p, err := Meet(t.Context(), w, nil)
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			parties[rank] = p
			p.Serve(func(c net.Conn) {
				defer c.Close()
				if _, err := io.Copy(c, c); err != nil {
					t.Error(err)
				}
			})
		})
	}
	all.Wait()
	for rank, p := range parties {
		if p == nil {
			continue
		}
		defer p.Close()
		if t.Failed() {
			continue
		}
		c, err := p.Dial(1 - rank)
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
			continue
		}
		said := make([]byte, 2)
		_, err = c.Write([]byte("hi"))
		if _, more := io.ReadFull(c, said); string(said) != "hi" || errors.Join(err, more) != nil {
			t.Errorf("rank %d: %q, %v, %v", rank, said, err, more)
		}
		c.Close()
	}
}
