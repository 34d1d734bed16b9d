// Package pt2 reads a PyTorch model that torch.export.save has written, without Python and without pickles.
//
// In: a .pt2 archive, as torch writes it that keeps weights raw (models/NAME.json of schema 8 with any minor version,
// data/weights/NAME_weights_config.json, data/constants/NAME_constants_config.json), which torch 2.9 to 2.11 are
// thought to write. It is what torch.export.export returns, before run_decompositions. Out: its aten.Graph, and the
// raw elements of its tensors, little-endian and row by row. Tests read archives written by hand after the published
// schema, versions 8.14 and 8.17; none of a real torch has been read yet.
//
// Operators have the names that a trace has: torch.ops.aten.add.Tensor is aten::add.Tensor, _operator.mul of sizes is
// aten::mul.int. A list that an operator returns is one value, which prim::ListUnpack takes apart. A new value of a
// buffer is an aten::copy_ at the end. Sizes that depend on inputs are those of the example. Arguments by position come
// first; one by keyword has the Name that its operator's schema gives it, because an archive leaves defaults out and
// says nothing of positions.
//
// Refused, by name and with what would be right: the layout of torch 2.7 and older, and every pickle; other major
// versions; decomposed graphs; inputs that are no tensors; inner graphs, custom objects, tokens, mutated inputs and
// parameters; compressed weights, unsafe or repeated names, values that nobody makes or that are made twice, tensors
// beyond their storage or that overlap, shapes and counts that no machine holds.
//
// Whoever calls Read closes the Weights, and must place keyword arguments by the schemas of its engine, train with
// Least to Most rows alone, and add a loss where the Graph has none.
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

// read reads an archive; name is the model's where the archive has none of its own.
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
	if b.graph.Name = a.name; a.name == "model" { // what torch calls each model that is saved alone
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

// gathered is a tensor that does not lie row by row in the file. Its elements are copied when the first is read.
type gathered struct{ rows func() (string, error) }

func (g gathered) ReadAt(p []byte, at int64) (int, error) {
	rows, err := g.rows()
	if err != nil {
		return 0, err
	}
	return strings.NewReader(rows).ReadAt(p, at)
}
