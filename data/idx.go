package data

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
)

// maxElements limits the size that an IDX header may claim.
const maxElements = 1 << 30

// idx is an array of bytes in the IDX format of the MNIST files. The format is two zero bytes, type 0x08, the number
// of dimensions, the dimensions as big-endian 32-bit numbers, and the data.
type idx struct {
	shape []int
	data  []uint8
}

func readIDX(r io.Reader) (*idx, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, cutShort(err, "offset 0: it is shorter than a header")
	}
	if head[0] != 0 || head[1] != 0 || head[2] != 8 || head[3] < 1 || head[3] > 4 {
		return nil, fmt.Errorf("offset 0: it begins %x; an IDX file of bytes begins 000008 and 1 to 4 dimensions", head)
	}
	out := &idx{}
	elements := 1
	for i := range int(head[3]) {
		var size uint32
		if err := binary.Read(r, binary.BigEndian, &size); err != nil {
			return nil, cutShort(err, fmt.Sprintf("offset %d: dimension %d is cut short", 4+4*i, i))
		}
		if size == 0 || uint64(elements)*uint64(size) > maxElements {
			return nil, fmt.Errorf("offset %d: dimension %d is %d; sizes are 1 or more, and 2^30 elements "+
				"in all", 4+4*i, i, size)
		}
		elements *= int(size)
		out.shape = append(out.shape, int(size))
	}
	// A header may claim more data than there is, so memory grows only with the data that is read.
	data, err := io.ReadAll(io.LimitReader(r, int64(elements)))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if len(data) != elements {
		return nil, fmt.Errorf("offset %d: the data ends after %d of %d bytes", 4+4*int(head[3])+len(data),
			len(data), elements)
	}
	switch _, err := io.ReadFull(r, make([]byte, 1)); {
	case err == nil:
		return nil, fmt.Errorf("offset %d: there is data behind the last of %d elements", 4+4*int(head[3])+elements, elements)
	case !errors.Is(err, io.EOF): // reading to the end also verifies the checksum
		return nil, fmt.Errorf("offset %d: behind the last of %d elements: %w", 4+4*int(head[3])+elements, elements, err)
	}
	out.data = data
	return out, nil
}

// cutShort returns an error that says where a file ends too early. If the file cannot be read for another reason, it
// returns err.
func cutShort(err error, where string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New(where)
	}
	return err
}

// openMaybeGzip opens path or, if it does not exist, path.gz. It decompresses files whose name ends with .gz.
func openMaybeGzip(path string) (io.ReadCloser, string, error) {
	f, err := document.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(path, ".gz") {
		if g, e := document.Open(path + ".gz"); e == nil {
			f, err, path = g, nil, path+".gz"
		}
	}
	if err != nil {
		return nil, path, err
	}
	if !strings.HasSuffix(path, ".gz") {
		return f, path, nil
	}
	z, err := document.Gunzip(bufio.NewReader(f))
	if err != nil {
		return nil, path, errors.Join(fmt.Errorf("%s: it is no gzip file: %w", path, err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, path, nil
}

func loadIDX(path string) (*idx, error) {
	r, path, err := openMaybeGzip(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data: %w; a folder of IDX files has train- and t10k-images-idx3-ubyte and "+
			"-labels-idx1-ubyte, each with .gz or without", err)
	}
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	defer r.Close()
	x, err := readIDX(bufio.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("data: %s: %w", path, err)
	}
	return x, nil
}

// openIDX reads the four files of an MNIST-like folder.
func openIDX(name, dir string, o Options) (*Set, error) {
	var image []int
	part := func(prefix string, keep bool) (*table, error) {
		images, err := loadIDX(filepath.Join(dir, prefix+"-images-idx3-ubyte"))
		if err != nil {
			return nil, err
		}
		labels, err := loadIDX(filepath.Join(dir, prefix+"-labels-idx1-ubyte"))
		if err != nil {
			return nil, err
		}
		if len(images.shape) != 3 || len(labels.shape) != 1 || images.shape[0] != labels.shape[0] {
			return nil, fmt.Errorf("data: %s: images of shape %v and labels of shape %v; they must be [n h w] and [n]", dir,
				images.shape, labels.shape)
		}
		image = []int{1, images.shape[1], images.shape[2]}
		return &table{order: newOrder(len(labels.data), o.Seed, keep), width: image[1] * image[2],
			pixels: images.data, labels: labels.data}, nil
	}
	train, err := part("train", false)
	if err != nil {
		return nil, err
	}
	test, err := part("t10k", true)
	if err != nil {
		return nil, err
	}
	return tableSet(name, train, test, image, o, normalise)
}

// tableSet makes a Set of two tables whose rows have the given shape. It scales the values and gives rows the shape
// that the model asks for. It refuses a test class whose number is above all training classes, and training classes
// that the model does not have.
func tableSet(name string, train, test *table, shape []int, o Options, scale func(train, test *table)) (*Set, error) {
	if train.width != test.width {
		return nil, fmt.Errorf("data: %s: training samples have %d values, test samples %d", name, train.width, test.width)
	}
	scale(train, test)
	p, err := o.paired(name, pair{Field{"input", shape, Float, nil}, Field{"target", []int{}, Int, nil}})
	if err != nil {
		return nil, err
	}
	train.pair, test.pair = p, p
	classes := uint8(0)
	for _, l := range train.labels {
		classes = max(classes, l)
	}
	for i, l := range test.labels {
		if l > classes {
			return nil, fmt.Errorf("data: %s: test sample %d has class %d; training samples have 0 to %d", name, i, l, classes)
		}
	}
	for i, l := range train.labels {
		if err := p.target.check([]int64{int64(l)}); err != nil {
			return nil, fmt.Errorf("data: %s: training sample %d has class %w", name, i, err)
		}
	}
	return &Set{Name: name, Train: train, Test: test, Fields: p.fields(), Classes: int(classes) + 1}, nil
}
