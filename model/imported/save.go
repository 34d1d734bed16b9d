package imported

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
)

// settingsFile is the file in a folder that describes the network beside it.
const settingsFile = "import.json"

const version = 1

// saved is the content of settingsFile.
type saved struct {
	Version int    `json:"version"`
	File    string `json:"file"` // name of the network's file, in the same folder
	Options
}

var settings = document.Store[saved]{Room: "import", Bytes: 1 << 20, Decode: document.Versioned("import", version,
	"import the network again", (*saved).check)}

func (s *saved) check() error {
	if s.File != fileOf(s.From) {
		return fmt.Errorf("file is %q and from %q; networks from %s are in %s, those from %s in %s", s.File, s.From, Torch,
			fileOf(Torch), PT2, fileOf(PT2))
	}
	if !slices.Contains([]string{"", Fused, Off}, s.Fuse) {
		return fmt.Errorf("fuse is %q; %s and %s are right", s.Fuse, Fused, Off)
	}
	return nil
}

// fileOf returns the name that the network's file has in a folder made by Save. The name depends on the format.
func fileOf(from string) string {
	if from == PT2 {
		return "network.pt2"
	}
	return "network.mr"
}

// CheckFolder refuses a target folder of Save that contains the network's file itself. It also refuses a path that is
// not a folder.
func CheckFolder(path, dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("import: %w", err)
	case !info.IsDir():
		return fmt.Errorf("import: %s is a file; a network is written to a folder", names.Shown(dir))
	}
	its, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	for _, from := range []string{Torch, PT2} {
		if mine, err := os.Stat(filepath.Join(dir, fileOf(from))); err == nil && os.SameFile(mine, its) {
			return fmt.Errorf("import: %s is in that folder already; give another folder", names.Shown(path))
		}
	}
	return nil
}

// Save copies a network's file into a folder, for Load, and describes how to read it. It first removes the previous
// network's files, so that an incomplete folder has no network. It stops when the context ends.
func Save(ctx context.Context, path, dir string, o Options) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	from, err := document.Open(path)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer from.Close()
	for _, name := range []string{settingsFile, fileOf(Torch), fileOf(PT2)} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("import: %w", err)
		}
	}
	if err := document.Write(filepath.Join(dir, fileOf(o.From)), func(w io.Writer) error {
		_, err := io.Copy(document.Until(ctx, w), from)
		return err
	}); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	return settings.Write(filepath.Join(dir, settingsFile), &saved{version, fileOf(o.From), o})
}
