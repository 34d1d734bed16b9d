package arrays

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/safetensors"
)

// npyFile returns an array in the format of numpy.save (version 1.0), from its dictionary and its elements.
func npyFile(t *testing.T, dictionary string, elements any) []byte {
	t.Helper()
	var b bytes.Buffer
	text := dictionary + strings.Repeat(" ", 63-(10+len(dictionary))%64) + "\n"
	b.WriteString("\x93NUMPY\x01\x00")
	b.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(text))))
	b.WriteString(text)
	if err := binary.Write(&b, binary.LittleEndian, elements); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// says returns the dictionary of an array with this type and shape.
func says(descr, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
}

// npzFile returns an archive of .npy members, stored or deflated.
func npzFile(t *testing.T, method uint16, members map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range members {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func write(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestEveryTypeIsRead: every type of number can be read back, from any row of a stored or a compressed member.
func TestEveryTypeIsRead(t *testing.T) {
	members := map[string][]byte{
		"f4.npy": npyFile(t, says("<f4", "3, 2"), []float32{1.5, -2, float32(math.Inf(1)), 4, 5, 1e-40}),
		"f8.npy": npyFile(t, says("<f8", "3, 2"), []float64{0.1, -2, math.Inf(-1), 4, 5, 1e30}),
		"i1.npy": npyFile(t, says("|i1", "3, 2"), []int8{-128, 127, 0, 1, 2, 3}),
		"i2.npy": npyFile(t, says("<i2", "3, 2"), []int16{-32768, 32767, 0, 1, 2, 3}),
		"i4.npy": npyFile(t, says("<i4", "3, 2"), []int32{-1 << 24, 1 << 24, 0, 1, 2, 3}),
		"i8.npy": npyFile(t, says("<i8", "3, 2"), []int64{-1 << 24, 1 << 24, 0, 1, 2, 3}),
		"u1.npy": npyFile(t, says("|u1", "3, 2"), []uint8{0, 255, 0, 1, 2, 3}),
		"u2.npy": npyFile(t, says("<u2", "3, 2"), []uint16{0, 65535, 0, 1, 2, 3}),
		"u4.npy": npyFile(t, says("<u4", "3, 2"), []uint32{0, 1 << 24, 0, 1, 2, 3}),
		"b1.npy": npyFile(t, says("|b1", "3, 2"), []uint8{0, 1, 1, 0, 2, 1}),
	}
	want := map[string][]float32{
		"f4": {4: 5, 5: 1e-40, 0: 1.5, 1: -2, 2: float32(math.Inf(1)), 3: 4},
		"f8": {0.1, -2, float32(math.Inf(-1)), 4, 5, 1e30},
		"i1": {-128, 127, 0, 1, 2, 3}, "i2": {-32768, 32767, 0, 1, 2, 3}, "i4": {-1 << 24, 1 << 24, 0, 1, 2, 3},
		"i8": {-1 << 24, 1 << 24, 0, 1, 2, 3}, "u1": {0, 255, 0, 1, 2, 3}, "u2": {0, 65535, 0, 1, 2, 3},
		"u4": {0, 1 << 24, 0, 1, 2, 3}, "b1": {0, 1, 1, 0, 1, 1},
	}
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		f := open(t, write(t, "a.npz", npzFile(t, method, members)))
		for name, numbers := range want {
			a := f.Arrays[name]
			order := slices.Concat(numbers[4:6], numbers[0:4])
			got, err := a.Floats([]int{2, 0, 1})
			if err != nil || !slices.Equal(got, order) || a.Rows() != 3 {
				t.Errorf("method %d: %s as floats: %v, %v; want %v", method, name, got, err, order)
			}
			whole, err := a.Ints([]int{2, 0, 1})
			if a.Type.Float() != (err != nil) {
				t.Errorf("%s as whole numbers: %v", name, err)
			}
			for i, v := range whole {
				if float32(v) != order[i] {
					t.Errorf("%s as whole numbers: %v; want %v", name, whole, order)
				}
			}
			truths, err := a.Bools([]int{1})
			if fine := a.Type.Bool() || !a.Type.Float(); fine != (err == nil) || fine && (truths[0] != (numbers[2] != 0) ||
				truths[1] != (numbers[3] != 0)) {
				t.Errorf("%s as bools: %v, %v", name, truths, err)
			}
		}
	}
}

// TestNumbersThatDoNotFit: a number that the wanted type cannot hold is refused, and the error names its row.
func TestNumbersThatDoNotFit(t *testing.T) {
	f := open(t, write(t, "a.npz", npzFile(t, zip.Store, map[string][]byte{
		"i8.npy": npyFile(t, says("<i8", "3,"), []int64{0, 1<<24 + 1, -100}),
		"f8.npy": npyFile(t, says("<f8", "3,"), []float64{0, 1e39, 0}),
		"u1.npy": npyFile(t, says("|u1", "3,"), []uint8{0, 1, 2}),
	})))
	rows := []int{2, 1, 0}
	_, tooLarge := f.Arrays["i8"].Floats(rows)
	_, infinite := f.Arrays["f8"].Floats(rows)
	_, two := f.Arrays["u1"].Bools(rows)
	_, fractions := f.Arrays["f8"].Ints(rows)
	for want, err := range map[string]error{
		"row 1 has 16777217, and floats of 32 bits hold whole numbers up to 16777216": tooLarge,
		"row 1 has 1e+39, which a float of 32 bits cannot hold":                       infinite,
		"row 2 has 2, and true and false are 1 and 0":                                 two,
		"row 2 has fractions (float64), where whole numbers are wanted":               fractions,
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestSafetensors(t *testing.T) {
	header, err := safetensors.Header([]safetensors.Named{
		{Name: "b", Entry: safetensors.Entry{DType: "BOOL", Shape: []int64{2, 3}}},
		{Name: "x", Entry: safetensors.Entry{DType: "F32", Shape: []int64{2, 1}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := append(slices.Clone(header), 1, 0, 1, 0, 0, 1)
	text = binary.LittleEndian.AppendUint32(text, math.Float32bits(2.5))
	text = binary.LittleEndian.AppendUint32(text, math.Float32bits(-1))
	f := open(t, write(t, "a.safetensors", text))
	if b, err := f.Arrays["b"].Bools([]int{1, 0}); err != nil || fmt.Sprint(b) != "[false false true true false true]" {
		t.Errorf("%v, %v", b, err)
	}
	if x, err := f.Arrays["x"].Floats([]int{1, 0}); err != nil || fmt.Sprint(x) != "[-1 2.5]" {
		t.Errorf("%v, %v", x, err)
	}
	if _, err := Open(write(t, "a.safetensors", text[:len(text)-1])); err == nil || !strings.Contains(err.Error(),
		"the file is cut short") {
		t.Errorf("cut short: %v", err)
	}
}

// TestRefusedArrays: an array that cannot be read is refused, and the error says what would be right. The other arrays
// of the file are still read.
func TestRefusedArrays(t *testing.T) {
	floats := []float32{1, 2, 3, 4, 5, 6}
	good := npyFile(t, says("<f4", "3, 2"), floats)
	from := func(dictionary string) []byte { return npyFile(t, dictionary, floats) }
	for want, text := range map[string][]byte{
		"shorter than the header of an array":          good[:9],
		"it ends within its header":                    good[:40],
		"it begins 504b03040506; an array that NumPy ": append([]byte("PK\x03\x04\x05\x06"), good[6:]...),
		"version 4.0 of the format":                    append([]byte("\x93NUMPY\x04\x00"), good[8:]...),
		"it has 160 in all":                            append(slices.Clone(good), 0, 0, 0, 0, 0, 0, 0, 0),
		"it has 148 in all":                            good[:148],
		"a header of 4294967295 bytes":                 []byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"),
		"Python objects, which are pickled":            from(says("|O", "3, 2")),
		"big-endian (>f4); write x.astype(":            from(says(">f4", "3, 2")),
		`its elements are "<f2"; bool, float32, `:      from(says("<f2", "3, 2")),
		`its elements are "<U7"`:                       from(says("<U7", "3, 2")),
		`its elements are "<c8"`:                       from(says("<c8", "3, 2")),
		`its elements are "|f4"`:                       from(says("|f4", "3, 2")),
		`its elements are "="`:                         from(says("=", "3, 2")),
		"a single number":                              npyFile(t, says("<f4", ""), floats[:1]),
		"the shape [0 2], which holds nothing":         npyFile(t, says("<f4", "0, 2"), []float32{}),
		"(fortran_order); write numpy.ascontiguous":    from("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }"),
		"structured array":                             from("{'descr': [('a', '<f4')], 'shape': (6,), }"),
		`there is no "shape"`:                          from("{'descr': '<f4', 'fortran_order': False, }"),
		`"descr" is there twice`:                       from("{'descr': '<f4', 'descr': '<f4', 'shape': (6,), }"),
		`"what": descr, fortran_order and shape`:       from("{'descr': '<f4', 'what': (6,), }"),
		"no colon follows":                             from("{'descr' '<f4'}"),
		"neither a comma nor the end":                  from("{'descr': '<f4' 'shape': (6,), }"),
		"it is no dictionary":                          from("(6,)"),
		"something follows the dictionary":             from(says("<f4", "3, 2") + "x"),
		"it is True or False":                          from("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,), }"),
		"it is no tuple":                               from("{'descr': '<f4', 'fortran_order': False, 'shape': 6, }"),
		"a size is no whole number of 64 bits":         from(says("<f4", "-3, 2")),
		"a tuple of one size has a comma":              from(says("<f4", "6")),
		"no comma is between":                          from(says("<f4", "3, 2 2")),
		"it has more than 32 dimensions":               from(says("<f4", strings.Repeat("1, ", 33))),
		"[9223372036854775807 9223372036854775807]":    from(says("<f4", "9223372036854775807, 9223372036854775807")),
		"a text has no end, or escapes":                from(`{'descr': '<f\x34', 'fortran_order': False, 'shape': (6,), }`),
	} {
		for _, method := range []uint16{zip.Store, zip.Deflate} {
			f := open(t, write(t, "a.npz", npzFile(t, method, map[string][]byte{"x.npy": text, "good.npy": good})))
			if err := f.Arrays["x"].Refused; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("method %d: got %v, want it to say %q", method, err, want)
			}
			if _, err := f.Arrays["x"].Floats([]int{0}); err == nil {
				t.Errorf("%q is read", want)
			}
			if x, err := f.Arrays["good"].Floats([]int{0}); err != nil || x[1] != 2 {
				t.Errorf("the good one: %v, %v", x, err)
			}
		}
	}
}

func TestRefusedArchives(t *testing.T) {
	array := npyFile(t, says("<f4", "6,"), []float32{1, 2, 3, 4, 5, 6})
	good := npzFile(t, zip.Store, map[string][]byte{"x.npy": array})
	var twice bytes.Buffer
	z := zip.NewWriter(&twice)
	for range 2 {
		if _, err := z.Create("x.npy"); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	many := map[string][]byte{}
	for i := range 70 {
		many[fmt.Sprintf("%d%s.npy", i, strings.Repeat("x", 64000))] = nil
	}
	for want, text := range map[string][]byte{
		"it is no whole zip archive":                   good[:len(good)-9],
		"member \"x.txt\" is no array":                 npzFile(t, zip.Store, map[string][]byte{"x.txt": array}),
		"member \"x.npy\" is there twice":              twice.Bytes(),
		"list of members has more than 1048576 bytes":  npzFile(t, zip.Store, many),
		"it is no whole zip archive (zip: not a valid": nil,
	} {
		if _, err := Open(write(t, "a.npz", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

// claiming returns an archive with one compressed array that claims to unpack to this many bytes.
func claiming(t *testing.T, text []byte, bytesInAll uint64) []byte {
	t.Helper()
	var packed, b bytes.Buffer
	d, err := flate.NewWriter(&packed, 9)
	if err == nil {
		_, err = d.Write(text)
	}
	if err != nil || d.Close() != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(&b)
	w, err := z.CreateRaw(&zip.FileHeader{Name: "x.npy", Method: zip.Deflate, UncompressedSize64: bytesInAll,
		CompressedSize64: uint64(packed.Len())})
	if err == nil {
		_, err = w.Write(packed.Bytes())
	}
	if err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCompressedArraysAreBounded: compressed arrays that would use up the memory are refused before they are unpacked.
// An array is also refused if its unpacked size or its checksum is not the one that the file says.
func TestCompressedArraysAreBounded(t *testing.T) {
	for shape, want := range map[string]string{"2097152, 1024": "not savez_compressed", "524288, 1024": "no array does"} {
		header := npyFile(t, says("|u1", shape), []uint8{})
		var rows, columns uint64
		if _, err := fmt.Sscanf(shape, "%d, %d", &rows, &columns); err != nil {
			t.Fatal(err)
		}
		f := open(t, write(t, "bomb.npz", claiming(t, slices.Concat(header, make([]byte, 1<<16)),
			uint64(len(header))+rows*columns)))
		if _, err := f.Arrays["x"].Ints([]int{0}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", shape, err, want)
		}
	}
	small := npzFile(t, zip.Deflate, map[string][]byte{"x.npy": npyFile(t, says("|u1", "9,"), []uint8("123456789"))})
	for _, where := range []struct {
		what string
		at   int
		want string
	}{
		{"the size", bytes.LastIndex(small, []byte("PK\x01\x02")) + 24, "in all"},
		{"the checksum", bytes.LastIndex(small, []byte("PK\x01\x02")) + 16, "checksum"},
	} {
		wrong := slices.Clone(small)
		wrong[where.at]++
		f := open(t, write(t, "a.npz", wrong))
		if err := f.Arrays["x"].Load(); err == nil || !strings.Contains(err.Error(), where.want) {
			t.Errorf("%s is wrong: %v; want %q", where.what, err, where.want)
		}
	}
}

// TestAFileThatShrinks: if a file is cut short while it is read, the error names the row.
func TestAFileThatShrinks(t *testing.T) {
	path := write(t, "a.npz", npzFile(t, zip.Store, map[string][]byte{
		"x.npy": npyFile(t, says("<f4", "6,"), []float32{1, 2, 3, 4, 5, 6})}))
	f := open(t, path)
	if x, err := f.Arrays["x"].Floats([]int{5}); err != nil || x[0] != 6 {
		t.Fatal(x, err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Arrays["x"].Floats([]int{5}); err == nil || !strings.Contains(err.Error(), "row 5: the file ends") {
		t.Errorf("got %v", err)
	}
}

// FuzzNPY: any header is refused, or read with a length and a number of dimensions within their limits.
func FuzzNPY(f *testing.F) {
	f.Add([]byte("\x93NUMPY\x01\x00\x10\x00" + says("<f4", "3, 2")))
	f.Add([]byte("\x93NUMPY\x02\x00\x40\x00\x00\x00" + says("|b1", "6,") + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, length, err := readNPY(bytes.NewReader(text))
		if err == nil && (length > int64(len(text)) || len(h.shape) > npyRank) {
			t.Errorf("%+v, %d bytes of %d", h, length, len(text))
		}
	})
}

// FuzzDictionary: a dictionary that was read gives the same header after it is written and read again.
func FuzzDictionary(f *testing.F) {
	f.Add(says("<f4", "3, 2"))
	f.Add(says("|b1", "6,"))
	f.Add(`{"descr":"<f4","fortran_order":True,"shape":()}`)
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseNPY(text)
		if err != nil {
			return
		}
		again := fmt.Sprintf("{'descr': \"%s\", 'fortran_order': False, 'shape': (", h.descr)
		if strings.Contains(h.descr, `"`) {
			again = fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (", h.descr)
		}
		for _, d := range h.shape {
			again += fmt.Sprint(d) + ","
		}
		if g, err := parseNPY(again + ")}"); err != nil || g.descr != h.descr || !slices.Equal(g.shape, h.shape) {
			t.Errorf("%q: %+v; again %+v, %v", text, h, g, err)
		}
	})
}

func FuzzNPZ(f *testing.F) {
	t := &testing.T{}
	array := npyFile(t, says("<f4", "3, 2"), []float32{1, 2, 3, 4, 5, 6})
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		f.Add(npzFile(t, method, map[string][]byte{"x.npy": array}))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := Open(write(t, "fuzz.npz", text))
		if err != nil {
			return
		}
		defer a.Close()
		for _, x := range a.Arrays {
			if x.Refused == nil {
				_, _ = x.Floats([]int{0, int(x.Rows() - 1)})
			}
		}
	})
}
