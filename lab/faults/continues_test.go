package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAStoppedProcessContinues: a process that was stopped continues and ends. If it does not end, that is reported. If
// it has ended before, that is no failure.
func TestAStoppedProcessContinues(t *testing.T) {
	for _, c := range []struct {
		name, words, says string
		within            time.Duration
	}{
		{"ends", "read line", "", promptly},
		{"goes on", "read line; exec sleep 60", "rank 1 goes on for over 300ms behind its stop", 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := exec.Command("sh", "-c", c.words)
			in, err := p.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = p.Wait() // the signal that kills it is no failure
			}()
			t.Cleanup(func() {
				_ = p.Process.Kill() // it may have ended
				<-ended
			})
			if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if err := in.Close(); err != nil { // once the process continues, it reads its input to the end
				t.Fatal(err)
			}
			victim := try{victim: 1}
			for range 2 { // at the second call the process has ended
				if err := victim.continues(p.Process, c.within); err != nil {
					t.Fatal(err)
				}
			}
			if said := strings.Join(victim.wrong, "; "); c.says == "" && said != "" || !strings.Contains(said, c.says) {
				t.Errorf("says %q, want %q", said, c.says)
			}
		})
	}
}
