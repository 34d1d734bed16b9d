package aten

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An export that is stopped while it writes leaves no partial file and keeps the previous file. The same holds if the
// disk becomes full.
func TestAStoppedExportLeavesNoDraft(t *testing.T) {
	dir := t.TempDir()
	spec := filepath.Join(dir, "spec.py")
	text := `
import os, signal
import torch

def ends(how):
    def sync(file):
        assert any(name.startswith(".millrace-") for name in os.listdir(os.environ["FOLDER"]))
        if how < 0:
            raise OSError(28, "No space left on device")
        os.kill(os.getpid(), how)
    os.fsync = sync
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(2, 2)
        def forward(self, x, y):
            return (self.a(x) - y).pow(2).mean()
    return M(), (torch.zeros(4, 2), torch.zeros(4, 2))

def interrupted(): return ends(signal.SIGINT)
def terminated(): return ends(signal.SIGTERM)
def full(): return ends(-1)
`
	out := filepath.Join(dir, "out")
	if err := errors.Join(os.WriteFile(spec, []byte(text), 0o600), os.Mkdir(out, 0o700),
		os.WriteFile(filepath.Join(out, "net.mr"), []byte("of before"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		code int
		says string
	}{
		"interrupted": {128 + int(syscall.SIGINT), "millrace_export: stopped by SIGINT before it was done\n"},
		"terminated":  {128 + int(syscall.SIGTERM), "millrace_export: stopped by SIGTERM before it was done\n"},
		"full":        {2, "No space left on device\n"},
	} {
		c := exec.CommandContext(t.Context(), python, "-B", exporter, spec+":"+name, "-o", filepath.Join(out, "net.mr"))
		c.Env = append(os.Environ(), "FOLDER="+out, "OMP_NUM_THREADS=1")
		said, err := c.CombinedOutput()
		if c.ProcessState.ExitCode() != want.code || !strings.HasSuffix(string(said), want.says) ||
			strings.Contains(string(said), "Traceback") {
			t.Errorf("%s: %v, %s; want code %d, %q", name, err, said, want.code, want.says)
		}
		left, err := os.ReadDir(out)
		text, failed := os.ReadFile(filepath.Join(out, "net.mr"))
		if err != nil || len(left) != 1 || failed != nil || string(text) != "of before" {
			t.Errorf("%s leaves %s, %q", name, fmt.Sprint(left), text)
		}
	}
}
