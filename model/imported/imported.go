// Package imported makes models from exported PyTorch networks.
//
// In: a file of python/millrace_export.py or of torch.export.save (.pt2), or a folder that Save has made from either.
// Out: a model.Model whose layers have the kind aten, each with its rules.Program, and whose Weights are in the file.
// For messages to the user it also returns the rules.Network from which the model was made. Parameters have PyTorch's
// names. Refused: what the readers (model/aten, model/aten/pt2) and the rules (model/aten/rules) refuse, and element
// types that millrace does not compute with. The error names the tensor and says what to change. The caller needs code
// that computes the kind aten (package nn). The file stays open as long as the Model is used.
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

// The formats that a network can have.
const (
	Torch = "torch" // python/millrace_export.py
	PT2   = "pt2"   // torch.export.save
)

// Options say how a network is read.
type Options struct {
	From string `json:"from,omitempty"` // Torch, PT2, or empty: determined from the file
	Loss string `json:"loss,omitempty"` // for a module that returns outputs: one of rules.Losses; otherwise empty
	Fuse string `json:"fuse,omitempty"` // Fused or Off; empty means Fused
}

// Values of Options.Fuse: whether operators are replaced by millrace's own (package fuse).
const (
	Fused = "on"
	Off   = "off"
)

// Network is an imported network.
type Network struct {
	*rules.Network
	Model *model.Model
	Fuse  *fuse.Report // nil if fusing was off
}

// IsFile says whether Load of this package should treat a word as a path. It returns true for a folder, for a file that
// is not YAML, and for a word that looks like a path but names no file. It returns false for the name of a family.
func IsFile(path string) bool {
	family := func(f model.Family) bool { return f.Name == path }
	if model.IsFile(path) || slices.ContainsFunc(model.Families(), family) {
		return false
	}
	_, err := os.Stat(path)
	return err == nil || slices.Contains([]string{".mr", ".pt2"}, filepath.Ext(path)) ||
		strings.ContainsRune(path, filepath.Separator)
}

// Files lists the files that Load reads for a file or folder.
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

// Load makes the model of a network in a file, or in a folder made by Save.
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
	ranges := n.Ranges() // before operators are replaced, because messages name the operators
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
