// Package pt2 reads a PyTorch model that torch.export.save has written, without Python and without pickles.
//
// In: a .pt2 archive that stores weights as raw bytes (models/NAME.json of schema 8 with any minor version,
// data/weights/NAME_weights_config.json, data/constants/NAME_constants_config.json). As far as known, torch 2.9 to 2.11
// write such archives. The archive must be the result of torch.export.export, before run_decompositions. Out: its
// aten.Graph, and the raw elements of its tensors, little-endian and row by row. Tests read archives that are written
// by hand according to the published schema, versions 8.14 and 8.17. No archive written by torch itself has been read
// yet.
//
// Operators have the same names as in a trace: torch.ops.aten.add.Tensor is aten::add.Tensor, and _operator.mul of
// sizes is aten::mul.int. A list that an operator returns is one value, which prim::ListUnpack unpacks. A new value of
// a buffer becomes an aten::copy_ at the end. Sizes that depend on inputs are those of the example. Positional
// arguments come first. A keyword argument has its Name in the operator's schema, because an archive leaves out
// defaults and does not give positions.
//
// Refused, with the name and what would be right: the format of torch 2.7 and older, and every pickle; other major
// versions; decomposed graphs; inputs that are not tensors; inner graphs, custom objects, tokens, mutated inputs and
// parameters; compressed weights; unsafe or repeated names; values that no node makes or that are made twice; tensors
// beyond their storage or that overlap; impossible shapes and counts.
//
// The caller of Read must close the Weights, place keyword arguments by the schemas of its engine, train only with
// Least to Most rows, and add a loss if the Graph has none.
package pt2

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/model/aten"
)

// Read reads what torch.export.save has written. The elements stay in the file until Weights is closed.
func Read(path string) (*aten.Graph, *aten.Weights, error) {
	f, err := document.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("pt2: %w", err)
	}
	info, err := f.Stat()
	var g *aten.Graph
	var of map[string]*io.SectionReader
	if err == nil {
		g, of, err = read(f, info.Size(), strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("pt2: %s: %w", names.Shown(path), err), f.Close())
	}
	return g, &aten.Weights{Closer: f, Of: of}, nil
}

// read reads an archive. The argument `name` is used if the archive does not name its model.
func read(r io.ReaderAt, size int64, name string) (*aten.Graph, map[string]*io.SectionReader, error) {
	a, err := newArchive(r, size)
	if err != nil {
		return nil, nil, err
	}
	var p program
	if err := a.decode(a.model(), &p); err != nil {
		return nil, nil, err
	}
	if err := p.check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", a.model(), err)
	}
	b, err := newBuilder(a, &p)
	if err != nil {
		return nil, nil, err
	}
	if b.graph.Name = a.name; a.name == "model" { // torch's name for a model that is saved alone
		b.graph.Name = name
	}
	if err := b.build(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", a.model(), err)
	}
	if err := b.graph.Check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", a.model(), err)
	}
	of := map[string]*io.SectionReader{}
	whole := map[string]bool{}
	for name, t := range b.weights.tensors {
		if !whole[t.member] {
			if err := a.verify(t.member); err != nil {
				return nil, nil, err
			}
			whole[t.member] = true
		}
		of[name] = t.open(r)
	}
	return &b.graph, of, nil
}

// open returns the elements of a tensor, row by row.
func (s stored) open(r io.ReaderAt) *io.SectionReader {
	if s.contiguous() {
		return io.NewSectionReader(r, s.at, s.span)
	}
	section := io.NewSectionReader(r, s.at, s.span)
	return io.NewSectionReader(gathered{sync.OnceValues(func() (string, error) {
		from := make([]byte, s.span)
		if _, err := io.ReadFull(section, from); err != nil {
			return "", err
		}
		return string(s.gather(from)), nil
	})}, 0, s.bytes())
}

// gathered is a tensor whose elements are not stored row by row in the file. The first read copies them row by row.
type gathered struct{ rows func() (string, error) }

func (g gathered) ReadAt(p []byte, at int64) (int, error) {
	rows, err := g.rows()
	if err != nil {
		return 0, err
	}
	return strings.NewReader(rows).ReadAt(p, at)
}
