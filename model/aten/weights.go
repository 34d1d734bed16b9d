package aten

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/safetensors"
	"github.com/millrace-ml/millrace/internal/ziparchive"
)

// The members of an exported model.
const (
	graphMember   = "graph.json"
	weightsMember = "weights.safetensors"
)

// Limits of a file, far beyond the models that a machine can train.
const (
	mostDirectory = 1 << 20  // bytes of the archive's directory
	mostHeader    = 16 << 20 // bytes of the header of weights
	mostWeights   = 1 << 40  // bytes of weights
)

// elements lists the element types that can be read.
var elements = []string{"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"}

// remedy says how to make a readable file.
const remedy = "write it with python3 python/millrace_export.py SPEC.py:build -o MODEL"

// Weights gives access to the elements of tensors: little-endian, row by row. The elements are read from the file only
// when the caller reads them.
type Weights struct {
	io.Closer
	Of map[string]*io.SectionReader // by the name of the Graph's tensor
}

// Read reads a file written by python/millrace_export.py. The elements stay in the file until Weights is closed.
func Read(path string) (*Graph, *Weights, error) {
	f, err := document.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("aten: %w", err)
	}
	info, err := f.Stat()
	var g *Graph
	var of map[string]*io.SectionReader
	if err == nil {
		g, of, err = read(f, info.Size())
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, fmt.Errorf("aten: %s: %s", names.Shown(path), names.Shown(fmt.Sprintf("%.1000v", err)))
	}
	return g, &Weights{f, of}, nil
}

// read reads an exported model of `size` bytes.
func read(r io.ReaderAt, size int64) (*Graph, map[string]*io.SectionReader, error) {
	members, err := membersOf(r, size)
	if err != nil {
		return nil, nil, err
	}
	text, err := textOf(members[graphMember])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", graphMember, err)
	}
	weights, err := section(r, members[weightsMember])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", weightsMember, err)
	}
	x, err := safetensors.ReadIndex(weights, weights.Size(), mostHeader, elements...)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", weightsMember, err)
	}
	g, err := decode(text, x.Entries)
	if err == nil {
		err = g.Check()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", graphMember, err)
	}
	if err := whole(members[weightsMember]); err != nil { // last, because it takes longest
		return nil, nil, fmt.Errorf("%s: %w", weightsMember, err)
	}
	of := map[string]*io.SectionReader{}
	for _, name := range x.Names {
		of[name] = io.NewSectionReader(weights, x.Start+x.Entries[name].Offsets[0],
			x.Entries[name].Offsets[1]-x.Entries[name].Offsets[0])
	}
	return g, of, nil
}

// membersOf returns the two members of the archive. They must be neither compressed nor encrypted, and must not
// overlap in the file.
func membersOf(r io.ReaderAt, size int64) (map[string]*zip.File, error) {
	all, err := ziparchive.Members(r, size, mostDirectory)
	if err != nil {
		return nil, fmt.Errorf("%w; an exported model is a zip archive of two members; "+remedy, err)
	}
	members := map[string]*zip.File{}
	var from, to int64
	for _, m := range all {
		at, err := m.DataOffset()
		switch {
		case m.Name != graphMember && m.Name != weightsMember:
			return nil, foreign(m.Name)
		case members[m.Name] != nil:
			return nil, fmt.Errorf("member %s is there twice", m.Name)
		case m.Flags&1 != 0:
			return nil, fmt.Errorf("member %s is encrypted; "+remedy, m.Name)
		case m.Method != zip.Store || m.CompressedSize64 != m.UncompressedSize64:
			return nil, fmt.Errorf("member %s is compressed (method %d, %d bytes to %d); only stored ones are read; "+remedy,
				m.Name, m.Method, m.CompressedSize64, m.UncompressedSize64)
		case m.UncompressedSize64 > mostWeights:
			return nil, fmt.Errorf("member %s is said to have %d bytes; at most %d are read", m.Name, m.UncompressedSize64,
				int64(mostWeights))
		case err != nil:
			return nil, fmt.Errorf("member %s: %w: the file is damaged or cut short", m.Name, err)
		}
		end := at + int64(m.UncompressedSize64)
		if end > size {
			return nil, fmt.Errorf("member %s ends at byte %d of %d: the file is cut short", m.Name, end, size)
		}
		if len(members) > 0 && at < to && from < end {
			return nil, fmt.Errorf("members %s and %s overlap", graphMember, weightsMember)
		}
		from, to = at, end
		members[m.Name] = m
	}
	for _, name := range []string{graphMember, weightsMember} {
		if members[name] == nil {
			return nil, fmt.Errorf("there is no member %s in the archive; "+remedy, name)
		}
	}
	return members, nil
}

// foreign returns the error for a member that an exported model does not have. The error says what kind of file has
// such a member.
func foreign(name string) error {
	switch _, inner, _ := strings.Cut(name, "/"); {
	case inner == "data.pkl":
		return fmt.Errorf("it is a file of torch.save, a pickle, which could run any code; " + remedy)
	case inner == "archive_format" || inner == "models/model.json" || inner == "serialized_exported_program.json":
		return fmt.Errorf("it is a file of torch.export.save; give --from pt2")
	}
	return fmt.Errorf("member %.200q; an exported model has %s and %s alone; "+remedy, name, graphMember, weightsMember)
}

// textOf returns the content of a member, after it has verified the checksum.
func textOf(m *zip.File) ([]byte, error) {
	if m.UncompressedSize64 > document.MaxBytes {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read: export fewer turns of a loop that traces away",
			m.UncompressedSize64, document.MaxBytes)
	}
	r, err := m.Open()
	if err != nil {
		return nil, err
	}
	text := make([]byte, m.UncompressedSize64)
	if _, err = io.ReadFull(r, text); err == nil {
		_, err = io.Copy(io.Discard, r) // reading to the end of the member checks the checksum
	}
	return text, damaged(cmp.Or(err, r.Close()))
}

// section returns the bytes of a member in the file.
func section(r io.ReaderAt, m *zip.File) (*io.SectionReader, error) {
	at, err := m.DataOffset()
	return io.NewSectionReader(r, at, int64(m.UncompressedSize64)), err
}

// whole reads a member to check its checksum.
func whole(m *zip.File) error {
	r, err := m.Open()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return damaged(cmp.Or(err, r.Close()))
}

// damaged explains a wrong checksum.
func damaged(err error) error {
	if errors.Is(err, zip.ErrChecksum) {
		return errors.New("its bytes are not those that were written (CRC-32): the file is damaged; " + remedy)
	}
	return err
}
