package profile

import (
	"io"

	"github.com/millrace-ml/millrace/internal/document"
)

var files = document.Store[Profile]{
	Room: "profile", Bytes: document.MaxBytes, Check: (*Profile).Validate,
	Missing: "millrace profile -o writes one, and millrace import makes one of another project's",
	Decode:  document.Versioned("profile", Version, "write it again with: millrace profile", (*Profile).Validate),
}

// Read reads a profile file. It refuses unknown fields, other versions and truncated files, so that reading and
// writing again loses nothing.
func Read(path string) (*Profile, error) { return files.Read(path) }

// Decode reads the JSON form.
func Decode(r io.Reader) (*Profile, error) { return files.From(r) }

// Write writes the JSON form to a file, either the whole file or nothing.
func (p *Profile) Write(path string) error { return files.Write(path, p) }
