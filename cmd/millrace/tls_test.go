package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/wire/tcp"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// A training over TLS refuses clients at every port if they lack the processes' certificate, or have only the token. It
// continues after a process is lost, and ends with the same weights as a single process.
func TestATrainingOverTLS(t *testing.T) {
	p := profiled(t)
	if err := os.WriteFile(filepath.Join(p.Dir, "token"), []byte(strangersToken), 0o600); err != nil {
		t.Fatal(err)
	}
	right, wrong := wiretest.NewAuthority(t), wiretest.NewAuthority(t)
	of := func(a *wiretest.Authority, mutual bool) *tcp.TLS {
		own := a.Signed(t, "processes.example")
		return &tcp.TLS{Certificate: &own, Roots: right.Roots(), Mutual: mutual}
	}
	certificate, key, roots := right.Files(t, p.Dir, "processes.example")
	for _, c := range []struct {
		name      string
		env       []string
		one       *tcp.TLS
		strangers map[string]*tcp.TLS // clients that are refused, by the error that they get
	}{
		{"made", []string{launch.TLSVar + "=on"}, &tcp.TLS{}, nil},
		{"signed", []string{launch.TLSCertVar + "=" + certificate, launch.TLSKeyVar + "=" + key,
			launch.TLSRootsVar + "=" + roots}, of(right, true),
			map[string]*tcp.TLS{"unknown certificate authority": of(wrong, true), "certificate required": of(right, false)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const flags = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --stages 3 " +
				"--workers 3 --eval-rows 8 "
			g := trains(t, p, "launch -n 3 --restarts 1 --token-file token -- "+flags+"--steps 100000000 --save-every 20 "+
				"--keep 3 --out "+c.name, c.env...)
			g.saved(20)
			run := runOf(t, g.pid(0)) + " 0"
			for rank := range 3 {
				all := listeners(t, g.pid(rank))
				if len(all) != 1 {
					t.Fatalf("rank %d listens at %v", rank, all)
				}
				said, err := handshake(t, all[0], c.one, strangersToken, run, rank)
				if err != nil {
					t.Errorf("rank %d, one of the run: %v", rank, err)
				} else if !strings.HasPrefix(string(said), "\x16\x03") || strings.Contains(string(said), "MWTC") {
					t.Errorf("rank %d speaks no TLS", rank)
				}
				_, err = handshake(t, all[0], c.one, strings.ToUpper(strangersToken), run, rank)
				if !tcp.Final(err) || !strings.Contains(err.Error(), "its token is not this run's") {
					t.Errorf("rank %d, another token: %v", rank, err)
				}
				for told, stranger := range c.strangers {
					if _, err := handshake(t, all[0], stranger, strangersToken, run, rank); err == nil ||
						!strings.Contains(err.Error(), told) {
						t.Errorf("rank %d, a stranger: %v; want something about %q", rank, err, told)
					}
				}
				plain := attack{at: all[0], turned: make(chan string, 1)}
				plain.says("a hello without TLS", append([]byte("MWTC\x01\x00\x02\x00"), make([]byte, 80)...))
				if told := <-plain.turned; told != "" {
					t.Errorf("rank %d: %s", rank, told)
				}
			}
			if err := syscall.Kill(g.pid(1), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			g.until("they have started again", func() bool {
				return strings.Contains(g.out.String(), "start 2 of at most 2")
			})
			steps := g.goesOn()
			if err := g.c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code, said := g.ended(); code != 143 || !strings.Contains(said, "a connection is refused") ||
				!strings.Contains(said, "goes on from "+c.name+"/checkpoints/step-") {
				t.Fatalf("code %d, or nobody is logged, or it does not go on\n%s", code, said)
			}
			same(t, p, flags, c.name, steps)
		})
	}
}
