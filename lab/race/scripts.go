package race

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-ml/millrace/internal/child"
)

// scripts are the rivals of lab/race/peers, embedded so that the binary works anywhere.
//
//go:embed peers/*.py
var scripts embed.FS

// WriteScripts writes the rivals' scripts into an existing folder.
func WriteScripts(dir string) error {
	names, err := fs.Glob(scripts, "peers/*.py")
	if err != nil {
		return fmt.Errorf("race: %w", err)
	}
	for _, name := range names {
		text, err := scripts.ReadFile(name)
		if err != nil {
			return fmt.Errorf("race: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o644); err != nil {
			return fmt.Errorf("race: the rivals' scripts: %w", err)
		}
	}
	return nil
}

// debianPython is the interpreter for Debian's package python3-torch. Other interpreters do not find that package.
const debianPython = "/usr/bin/python3"

// Python finds an interpreter with PyTorch, and returns the version of PyTorch. Without one, the error says how to
// install it.
func Python(ctx context.Context) (path, version string, err error) {
	out, err := child.Command(ctx, debianPython, "-c", "import torch; print(torch.__version__)").CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return "", "", fmt.Errorf("race: PyTorch does not load in %s (%w: %s); install it with: apt-get install "+
			"python3-torch",
			debianPython, err, lines[len(lines)-1])
	}
	return debianPython, strings.TrimSpace(string(out)), nil
}
