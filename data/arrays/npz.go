package arrays

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"strings"

	"github.com/millrace-ml/millrace/internal/ziparchive"
)

const (
	// mostMembers limits the bytes of the archive's list of members.
	mostMembers = 1 << 20
	// mostPacked limits the unpacked size of a file's compressed members, in bytes. Only members that are read count.
	// All of them are held in memory.
	mostPacked = 1 << 30
	// mostRatio is a ratio of unpacked to packed bytes that deflate cannot reach.
	mostRatio = 1100
)

// openNPZ lists the arrays of an archive that numpy.savez has written.
func openNPZ(f *os.File, size int64) (map[string]*Array, error) {
	members, err := ziparchive.Members(f, size, mostMembers)
	if err != nil {
		return nil, fmt.Errorf("%w; write it with numpy.savez", err)
	}
	all := map[string]*Array{}
	packed := int64(mostPacked)
	for _, m := range members {
		name, ok := strings.CutSuffix(m.Name, ".npy")
		switch {
		case !ok:
			return nil, fmt.Errorf("member %.80q is no array; numpy.savez writes arrays alone, as NAME.npy", m.Name)
		case all[name] != nil:
			return nil, fmt.Errorf("member %.80q is there twice", m.Name)
		}
		a := &Array{Name: name}
		a.Refused = a.openMember(f, size, m, &packed)
		all[name] = a
	}
	return all, nil
}

// openMember reads an array's header. `packed` is how many more bytes the compressed members may unpack to.
func (a *Array) openMember(f *os.File, size int64, m *zip.File, packed *int64) error {
	if m.Flags&1 != 0 {
		return errors.New("it is encrypted; NumPy encrypts nothing")
	}
	at, err := m.DataOffset()
	if err != nil {
		return fmt.Errorf("its place in the archive: %w", err)
	}
	if m.CompressedSize64 > uint64(max(size-at, 0)) {
		return fmt.Errorf("it lies from byte %d of a file of %d on, and has %d: the file is cut short", at, size,
			m.CompressedSize64)
	}
	if m.Method == zip.Store && m.CompressedSize64 != m.UncompressedSize64 {
		return fmt.Errorf("it has %d bytes, which are not compressed, and is said to unpack to %d", m.CompressedSize64,
			m.UncompressedSize64)
	}
	stored := io.NewSectionReader(f, at, int64(m.CompressedSize64))
	from := io.Reader(stored)
	if m.Method != zip.Store {
		unpacked, err := m.Open()
		if err != nil {
			return fmt.Errorf("%w; write it with numpy.savez", err)
		}
		defer unpacked.Close()
		from = unpacked
	}
	h, length, err := readNPY(from)
	if err != nil {
		return err
	}
	if err := a.says(h); err != nil {
		return err
	}
	have := m.UncompressedSize64 - uint64(length)
	if bytes := a.bytes(); bytes < 0 || uint64(bytes) != have || uint64(length) > m.UncompressedSize64 {
		return fmt.Errorf("%s%v behind a header of %d bytes; it has %d in all", a.Type, a.Shape, length,
			m.UncompressedSize64)
	}
	a.r = io.NewSectionReader(f, at+length, int64(have))
	if m.Method == zip.Store {
		return nil
	}
	a.load = func() (io.ReaderAt, error) { return unpack(m, length, packed) }
	return nil
}

// says sets the array's type and shape from a header.
func (a *Array) says(h npy) error {
	order, name := "", h.descr
	if len(name) > 1 {
		order, name = name[:1], name[1:]
	}
	switch {
	case name == "O":
		return errors.New("it has Python objects, which are pickled and never read; make it an array of numbers")
	case order == ">":
		return fmt.Errorf("its elements are big-endian (%s); write x.astype(x.dtype.newbyteorder('<'))", h.descr)
	case types[name].bytes() == 0 || order == "|" && types[name].bytes() > 1 || order != "<" && order != "|":
		return fmt.Errorf("its elements are %.20q; %s are read", h.descr, known())
	case h.fortran && len(h.shape) > 1:
		return errors.New("it lies column by column (fortran_order); write numpy.ascontiguousarray(x)")
	}
	a.Type, a.Shape = types[name], h.shape
	return nil
}

// bytes returns an array's size, or -1 if it overflows.
func (a *Array) bytes() int64 {
	n := uint64(a.Type.bytes())
	for _, d := range a.Shape {
		var over uint64
		if over, n = bits.Mul64(n, uint64(d)); over != 0 || n > 1<<62 {
			return -1
		}
	}
	return int64(n)
}

// unpack reads all of a compressed member, without its header.
func unpack(m *zip.File, header int64, packed *int64) (io.ReaderAt, error) {
	if uint64(*packed) < m.UncompressedSize64 {
		return nil, fmt.Errorf("compressed arrays are held in memory, up to %d bytes of a file, and this one brings them "+
			"beyond; write the file with numpy.savez, not savez_compressed", mostPacked)
	}
	if m.UncompressedSize64/mostRatio > m.CompressedSize64 {
		return nil, fmt.Errorf("it is said to unpack from %d bytes to %d, which no array does", m.CompressedSize64,
			m.UncompressedSize64)
	}
	*packed -= int64(m.UncompressedSize64)
	r, err := m.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	all := make([]byte, m.UncompressedSize64)
	if _, err := io.ReadFull(r, all); err != nil {
		return nil, fmt.Errorf("it does not unpack to the %d bytes that it is said to: %w", m.UncompressedSize64, err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // reading to the end also verifies the checksum
		return nil, fmt.Errorf("behind the %d bytes that it unpacks to: %w", m.UncompressedSize64,
			cmp.Or(err, errors.New("there are more")))
	}
	return bytes.NewReader(all[header:]), nil
}
