package data

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func writeFile(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// zipped returns copies of a gzip file, concatenated. Each copy unpacks to about a megabyte of repeated text.
func zipped(t *testing.T, text string, times int) []byte {
	t.Helper()
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.DefaultCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(bytes.Repeat([]byte(text), 1<<20/len(text))); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(packed.Bytes(), times) // concatenated gzip files are a single gzip file
}

// TestEndlessInputsAreRefused: data that never ends, never begins, or unpacks to far more than its size is refused
// before it takes memory or time.
func TestEndlessInputsAreRefused(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.csv")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.csv")
	if err := os.Symlink("/dev/zero", link); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		"/dev/zero": "is a device; give a regular file",
		link:        "is a device; give a regular file",
		fifo:        "is a pipe with a name; give a regular file",
		writeFile(t, "bomb.csv.gz", zipped(t, "0,", 8)):            "line 1 is longer than 4194304 bytes",
		writeFile(t, "long.csv", bytes.Repeat([]byte("0"), 5<<20)): "line 1 is longer than 4194304 bytes",
		writeFile(t, "rows.csv.gz", zipped(t, "\n", 100)): "it unpacks to over 67108864 bytes and " +
			"200 times its length",
	} {
		if _, err := Open(spec, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it to say %q", spec, err, want)
		}
	}
}

// TestAByteOrderMarkIsNoNumber: a byte order mark is not read as part of the first number.
func TestAByteOrderMarkIsNoNumber(t *testing.T) {
	rows := "1,2,0\n3,4,1\n5,6,0\n7,8,1\n9,10,0\n"
	for _, mark := range []string{"", "\ufeff", "\ufeffa,b,class\n"} {
		set, err := Open(writeFile(t, "t.csv", []byte(mark+rows)), Options{})
		if err != nil || set.Train.Len() != 4 || set.Test.Len() != 1 {
			t.Errorf("%q: %v", mark, err)
		}
	}
}

// TestEveryClassIsTrained: usually every fifth row is a test row. If classes repeat every five or ten rows, the
// training rows would then lack some classes. In that case every fifth row of each class is a test row instead.
func TestEveryClassIsTrained(t *testing.T) {
	for _, period := range []int{3, 5, 10} {
		text := ""
		for i := range 100 {
			text += fmt.Sprintf("%d,%d\n", i, i%period)
		}
		set, err := Open(writeFile(t, "t.csv", []byte(text)), Options{})
		if err != nil {
			t.Fatalf("period %d: %v", period, err)
		}
		train, test := set.Train.(*table), set.Test.(*table)
		if !covers(train, test) || !covers(test, train) || set.Classes != period || train.Len() != 80 && period != 3 {
			t.Errorf("period %d: %d rows to train, %d to test, %d classes", period, train.Len(), test.Len(), set.Classes)
		}
		for i, class := range test.labels {
			if int(test.values[i])%period != int(class) || period == 3 && int(test.values[i]) != 5*i+4 {
				t.Fatalf("period %d: test row %d is %v of class %d", period, i, test.values[i], class)
			}
		}
	}
	few := "1,0\n2,1\n3,2\n4,3\n5,4\n"
	if _, err := Open(writeFile(t, "t.csv", []byte(few)), Options{}); err == nil ||
		!strings.Contains(err.Error(), "no class has 5 rows") {
		t.Errorf("a row of each class: %v", err)
	}
}

// TestAPackedFileIsReadToItsChecksum: the checksum of a packed file comes after its last element, and is verified.
func TestAPackedFileIsReadToItsChecksum(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte{0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9}); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	whole := packed.Bytes()
	if x, err := loadIDX(writeFile(t, "a.gz", whole)); err != nil || !bytes.Equal(x.data, []byte{7, 8, 9}) {
		t.Fatalf("%+v, %v", x, err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(whole)-8] ^= 1 // a bit of the checksum
	for says, text := range map[string][]byte{
		"behind the last of 3 elements: gzip: invalid checksum": flipped,
		"behind the last of 3 elements: unexpected EOF":         whole[:len(whole)-3],
	} {
		if _, err := loadIDX(writeFile(t, "a.gz", text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}
