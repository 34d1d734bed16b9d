package profile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/millrace-ml/millrace/internal/document"
)

// Read reads a profile file. Unknown fields, other versions and truncated files are
// refused, so that nothing is lost by reading and writing again.
func Read(path string) (*Profile, error) {
	text, err := document.Read(path, document.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("profile: %w; millrace profile -o writes one, and millrace import makes one of another project's", err)
	}
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	p, err := Decode(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	return p, nil
}

// Decode reads the JSON form.
func Decode(r io.Reader) (*Profile, error) {
	text, err := document.ReadAll(r, document.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	var p Profile
	if err := document.Decode(text, Version, &p); err != nil {
		return nil, fmt.Errorf("profile: cannot read it: %w; write it again with: millrace profile", err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

// Write writes the JSON form to a file, whole or not at all.
func (p *Profile) Write(path string) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if err := document.WriteJSON(path, p); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}
