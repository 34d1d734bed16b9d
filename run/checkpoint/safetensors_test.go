package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/engine"
)

// file returns a safetensors file with this header and `data` zero bytes.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, data)...)
}

func TestTheBytesAreThoseOfTheFormat(t *testing.T) {
	var b bytes.Buffer
	err := Write(&b, []Tensor{
		{Name: "a.weight", DType: engine.Float32, Shape: []int64{1, 2}, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{Name: "n", DType: engine.Int64, Data: []byte{9, 0, 0, 0, 0, 0, 0, 0}},
	}, map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	header := `{"__metadata__":{"k":"v"},"a.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},` +
		`"n":{"dtype":"I64","shape":[],"data_offsets":[8,16]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := append(file(header, 0), 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0)
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("got  %q\nwant %q", b.Bytes(), want)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in []Tensor
		for i, name := range rapid.SliceOfNDistinct(rapid.StringN(0, 12, 40), 0, 6, rapid.ID[string]).Draw(t, "names") {
			d := rapid.SampledFrom([]engine.DType{engine.Float32, engine.Float64, engine.Int64, engine.Uint8,
				engine.Bool}).Draw(t, "dtype")
			shape := rapid.SliceOfN(rapid.Int64Range(0, 4), 0, 4).Draw(t, "shape")
			size, err := byteSize(d, shape)
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, Tensor{Name: fmt.Sprint(strings.ToValidUTF8(name, ""), i), DType: d, Shape: shape,
				Data: rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")})
		}
		var b bytes.Buffer
		if err := Write(&b, in, nil); err != nil {
			t.Fatal(err)
		}
		r := bytes.NewReader(b.Bytes())
		x, err := ReadIndex(r, r.Size())
		if err != nil {
			t.Fatal(err)
		}
		if len(x.names) != len(in) {
			t.Fatalf("%d of %d tensors", len(x.names), len(in))
		}
		for _, want := range in {
			got, err := x.Read(r, want.Name)
			if err != nil || got.DType != want.DType || fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) ||
				!bytes.Equal(got.Data, want.Data) {
				t.Fatalf("%q: %+v, %v; want %+v", want.Name, got, err, want)
			}
		}
	})
}

func TestBrokenFilesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		file []byte
		says string
	}{
		{"empty", nil, "no safetensors"},
		{"header longer than the file", file(`{}`, 0)[:9], "cut short"},
		{"header of a terabyte", append(binary.LittleEndian.AppendUint64(nil, 1<<40), 0), "cut short"},
		{"negative length", bytes.Repeat([]byte{0xff}, 16), "cut short"},
		{"no object", file(`[]`, 0), "no JSON object"},
		{"no JSON", file(`{"a`, 0), "header"},
		{"something behind", file(`{}x`, 0), "follows"},
		{"data cut short", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 7), "cut short"},
		{"data left over", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 9), "1 bytes follow"},
		{"unknown type", file(`{"a":{"dtype":"F8","shape":[2],"data_offsets":[0,8]}}`, 8), `"F8"`},
		{"a hole",
			file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}`,
				5), "begins at byte 3"},
		{"an overlap",
			file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`,
				3), "begins at byte 1"},
		{"offsets of another size", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}}`, 7), "has 8 bytes"},
		{"backwards", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,-1]}}`, 0), "has 0 bytes"},
		{"negative shape", file(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1), "negative"},
		{"overflow", file(`{"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0), "more bytes"},
		{"a name twice",
			file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`,
				1), "twice"},
		{"metadata twice", file(`{"__metadata__":{"a":"b"},"__metadata__":{}}`, 0), "twice"},
		{"metadata that is no text", file(`{"__metadata__":{"a":1}}`, 0), "metadata"},
	} {
		_, err := ReadIndex(bytes.NewReader(c.file), int64(len(c.file)))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want something about %q", c.name, err, c.says)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, bad := range [][]Tensor{
		{{Name: "a", DType: engine.Float32, Shape: []int64{2}, Data: make([]byte, 7)}},
		{{Name: "a", DType: engine.Uint8, Data: make([]byte, 1)}, {Name: "a", DType: engine.Uint8, Data: make([]byte, 1)}},
		{{Name: "__metadata__", DType: engine.Uint8, Data: make([]byte, 1)}},
		{{Name: "a", DType: 77, Data: make([]byte, 1)}},
	} {
		if err := Write(&bytes.Buffer{}, bad, nil); err == nil {
			t.Errorf("%v was written", bad)
		}
	}
}

// FuzzReadIndex checks that any file that is accepted has readable tensors. They lie side by side and fill the file.
func FuzzReadIndex(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},`+
		`"b":{"dtype":"BOOL","shape":[],"data_offsets":[8,9]}}`, 9))
	f.Add(file(`{"__metadata__":{"k":"v"}}`, 0))
	f.Add(file(`{"a":{"dtype":"U8","shape":[0,4294967296],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		x, err := ReadIndex(r, r.Size())
		if err != nil {
			return
		}
		total := 0
		for _, name := range x.names {
			got, err := x.Read(r, name)
			if err != nil {
				t.Fatalf("%q cannot be read: %v", name, err)
			}
			if size, err := byteSize(got.DType, got.Shape); err != nil || size != int64(len(got.Data)) {
				t.Fatalf("%q has %d bytes", name, len(got.Data))
			}
			total += len(got.Data)
		}
		if x.start+int64(total) != int64(len(b)) {
			t.Fatalf("%d bytes of tensors behind byte %d in a file of %d", total, x.start, len(b))
		}
	})
}
