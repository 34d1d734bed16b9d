package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// begun starts a shell with a script that prints the process id of a grandchild, and returns that id.
func begun(t *testing.T, ctx context.Context, script string) (c *exec.Cmd, grandchild int) {
	t.Helper()
	c = Command(ctx, "/bin/sh", "-c", script)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(io.LimitReader(out, 20), &grandchild); err != nil {
		t.Fatal(err)
	}
	return c, grandchild
}

// alive reports whether a process exists and has not ended. A zombie has ended.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil {
		return !strings.Contains(err.Error(), "no such process")
	}
	_, behind, _ := bytes.Cut(text, []byte(") "))
	return behind[0] != 'Z' && behind[0] != 'X'
}

// ends fails the test unless a process ends soon. After a kill the system needs a moment.
func ends(t *testing.T, pid int) {
	t.Helper()
	for began := time.Now(); alive(t, pid); time.Sleep(time.Millisecond) {
		if time.Since(began) > 2*time.Second {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

// TestTheGroupEndsWithTheContext: the end of the context ends child and grandchild, even if both ignore SIGTERM.
func TestTheGroupEndsWithTheContext(t *testing.T) {
	for name, script := range map[string]string{
		"they obey":   `sleep 1000 & echo $!; wait`,
		"they do not": `trap "" TERM; sleep 1000 & echo $!; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			c, grandchild := begun(t, ctx, script)
			if !alive(t, grandchild) {
				t.Fatal("it has ended by itself")
			}
			cancel()
			if err := c.Wait(); err == nil {
				t.Error("it ended well")
			}
			ends(t, grandchild)
		})
	}
}

// TestTheGroupIsToldFirst: a child can clean up after SIGTERM, before it is killed.
func TestTheGroupIsToldFirst(t *testing.T) {
	left := t.TempDir() + "/left"
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := begun(t, ctx, `trap "echo so >`+left+`; exit 0" TERM; sleep 1000 & echo $!; wait`)
	cancel()
	if err := c.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if text, err := os.ReadFile(left); err != nil || string(text) != "so\n" {
		t.Errorf("it left %q, %v", text, err)
	}
}

// Kill also ends the processes that a child leaves behind.
func TestKillSweeps(t *testing.T) {
	c, grandchild := begun(t, t.Context(), `sleep 1000 >/dev/null 2>&1 & echo $!`)
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if !alive(t, grandchild) {
		t.Fatal("it has ended by itself")
	}
	Kill(c)
	ends(t, grandchild)
}
