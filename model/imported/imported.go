// Package imported makes models of PyTorch networks that were exported.
//
// In: a file of python/millrace_export.py, one of torch.export.save (.pt2), or a folder that Save has made of either.
// Out: a model.Model of layers of the kind aten, each with its rules.Program, whose Weights lie in the file; and, for
// people, the rules.Network that it was made of. Parameters have PyTorch's names.
// Refused: what the readers (model/aten, model/aten/pt2) and the rules (model/aten/rules) refuse, and elements that
// millrace does not compute with; each with the tensor and what to change.
// Its driver computes the kind aten (package nn); the file stays open as long as the Model is used.
package imported

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/content"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/fuse"
	"github.com/millrace-ml/millrace/model/aten/pt2"
	"github.com/millrace-ml/millrace/model/aten/rules"
)

// The doors that a network comes through.
const (
	Torch = "torch" // python/millrace_export.py
	PT2   = "pt2"   // torch.export.save
)

// Options say how a network is read.
type Options struct {
	From string `json:"from,omitempty"` // Torch, PT2, or empty: by what the file has
	Loss string `json:"loss,omitempty"` // one of rules.Losses, of a module that returns outputs; or empty
	Fuse string `json:"fuse,omitempty"` // Fused or Off; empty is Fused
}

// Whether operators of a network are replaced by those of millrace (package fuse).
const (
	Fused = "on"
	Off   = "off"
)

// Network is an imported network.
type Network struct {
	*rules.Network
	Model *model.Model
	Fuse  *fuse.Report // nil where nothing was to be fused
}

// IsFile says whether a word is for Load: a file that is no YAML, a folder, or a path to where neither is. A family's
// name is never one.
func IsFile(path string) bool {
	family := func(f model.Family) bool { return f.Name == path }
	if model.IsFile(path) || slices.ContainsFunc(model.Families(), family) {
		return false
	}
	_, err := os.Stat(path)
	return err == nil || slices.Contains([]string{".mr", ".pt2"}, filepath.Ext(path)) ||
		strings.ContainsRune(path, filepath.Separator)
}

// Files lists the files that Load reads of a file or folder.
func Files(path string) []string {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}
	}
	files := []string{filepath.Join(path, settingsFile)}
	if s, err := settings.Read(files[0]); err == nil {
		files = append(files, filepath.Join(path, s.File))
	}
	return files
}

// Load makes the model of a network in a file, or in a folder of Save's.
func Load(path string) (*model.Model, error) {
	var o Options
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		s, err := settings.Read(filepath.Join(path, settingsFile))
		if errors.Is(err, fs.ErrNotExist) {
			if is := content.Of(path); is != content.Unknown {
				return nil, fmt.Errorf("import: %s is no network: it is %v", names.Shown(path), is)
			}
			return nil, fmt.Errorf("import: the folder %s has no %s; millrace import -o makes one that has", names.Shown(path),
				settingsFile)
		}
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(path, s.File)); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("import: the folder %s has no %s any more; import the network again, with -o",
				names.Shown(path), s.File)
		}
		o, path = s.Options, filepath.Join(path, s.File)
	}
	n, err := Open(path, o)
	if err != nil {
		return nil, err
	}
	return n.Model, nil
}

// Open reads a network from a file.
func Open(path string, o Options) (*Network, error) {
	read := aten.Read
	switch is := content.Of(path); {
	case is != content.Unknown && is != content.Network && is != content.PT2:
		return nil, fmt.Errorf("import: %s is no network: it is %v", names.Shown(path), is)
	case o.From == PT2 || o.From == "" && is == content.PT2:
		read = pt2.Read
	}
	g, w, err := read(path)
	if err != nil {
		return nil, err
	}
	if o.Loss != "" {
		g, err = rules.WithLoss(g, o.Loss)
	}
	var n *Network
	if err == nil {
		n, err = network(g, w, o.Fuse != Off)
	}
	if err != nil {
		_ = w.Close() // nothing was written
		return nil, fmt.Errorf("import: %s: %s", names.Shown(path), names.Shown(fmt.Sprintf("%.2000v", err)))
	}
	return n, nil
}

func network(g *aten.Graph, w *aten.Weights, fused bool) (*Network, error) {
	n, err := rules.Normalise(g)
	if err != nil {
		return nil, err
	}
	ranges := n.Ranges() // before operators are replaced, which are named
	var report *fuse.Report
	if fused {
		report = fuse.Apply(n, w.Of)
	}
	b := &builder{net: n, tensors: map[string]*aten.Tensor{}, ranges: ranges, held: map[string]bool{},
		also: map[string][]string{}, makers: map[int]string{}, yields: map[string][]int{}}
	m, err := b.model()
	if err != nil {
		return nil, err
	}
	m.Weights = &weights{w, b.tensors}
	return &Network{n, m, report}, nil
}
