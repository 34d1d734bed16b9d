package together

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// Processes whose certificates have a name meet by that name. They then reach each other by addresses that are in no
// certificate.
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
	own, key, roots := wiretest.NewAuthority(t).Files(t, t.TempDir(), "localhost")
	shown := &launch.TLS{Certificate: own, Key: key, Roots: roots}
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
