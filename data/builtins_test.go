package data

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBuiltinsHaveAPlace: the digits are in the program; any other installed data set has a folder.
func TestBuiltinsHaveAPlace(t *testing.T) {
	for _, b := range Builtins() {
		path, bytes, err := b.Place()
		if b.Name == "digits" {
			if info, stat := os.Stat("digits.csv.gz"); stat != nil || path != "" || bytes != info.Size() || err != nil {
				t.Errorf("digits: %q, %d bytes, %v (%v)", path, bytes, err, stat)
			}
			continue
		}
		files, _ := filepath.Glob(filepath.Join(path, "*-ubyte*"))
		if (len(files) == 0) != (err != nil) || err == nil && bytes < 1<<20 {
			t.Errorf("%s: %d files in %s, %d bytes, %v", b.Name, len(files), path, bytes, err)
		}
	}
}
