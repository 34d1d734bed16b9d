package tcp

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
)

// TestTroublesOfThisProcess: a problem of this process that keeps it from reaching a running worker is not reported as
// the loss of that worker.
func TestTroublesOfThisProcess(t *testing.T) {
	authority := newAuthority(t)
	for name, c := range map[string]struct {
		says    string
		prepare func(t *testing.T, there, here *Config)
		when    func(t *testing.T)
	}{
		"no files are left": {"too many open files", func(t *testing.T, there, here *Config) {}, noFiles},
		"a certificate that is refused": {"certificate required", func(t *testing.T, there, here *Config) {
			there.TLS, here.TLS = authority.signed(t, "127.0.0.1"), authority.signed(t, "127.0.0.1")
			there.TLS.Mutual = true
		}, func(*testing.T) {}},
	} {
		t.Run(name, func(t *testing.T) {
			short := quick()
			short.dial = 500 * time.Millisecond
			here, there := Config{Process: 0, limits: short}, Config{Process: 1, limits: short}
			c.prepare(t, &there, &here)
			a, _ := listen(t, here)
			b, _ := listen(t, there)
			all := carriersOf(t, 1, a, b)
			defer closeAll(t, all)
			c.when(t)
			said := make(chan error, 1)
			e := wire.Edge{ID: 5, From: 0, To: 1}
			all[0].Send(1, e, 0, []*wire.Buffer{bufferOf(nil)}, func(err error) { said <- err })
			err := errorOf(t, said, "the send")
			var peer *wire.PeerError
			if !errors.As(err, &peer) || peer.Rank != 1 || peer.Lost || !strings.Contains(err.Error(), c.says) {
				t.Errorf("lost: %v: %v", peer != nil && peer.Lost, err)
			}
		})
	}
}

// noFiles refuses this process every new file descriptor until the end of the test.
//
// The limit allows only the descriptors 0, 1 and 2. Meanwhile, a connection of an earlier test may close. The
// descriptor that it frees is above the limit, so it cannot be used again.
func noFiles(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
}
