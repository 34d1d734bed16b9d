package launch

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace-ml/millrace/internal/document"
)

// These are the limits of a token's length in bytes, without surrounding white space.
const (
	minToken = 16
	maxToken = 4096
)

// Read returns the secret from the File, or from the Variable in `lines`, which have the form NAME=value. It refuses a
// regular file that other users can access, or that its group can change. If neither is given, Read returns the user's
// own token.
func (t Token) Read(lines []string) ([]byte, error) {
	switch {
	case t.Variable != "":
		return checkToken([]byte(newEnvironment(lines)[t.Variable]), "in "+t.Variable)
	case t.File != "":
		return readToken(t.File)
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("launch: there is no folder for the user's own token (%w); give one by %s", err, TokenFileVar)
	}
	return OwnToken(filepath.Join(dir, "millrace"))
}

// OwnToken returns the token that a user's processes share if none is given. It is in a file in dir, made on first
// use. Hosts that share the folder share the token.
func OwnToken(dir string) ([]byte, error) {
	path := filepath.Join(dir, "token")
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := makeToken(dir, path); err != nil {
			return nil, fmt.Errorf("launch: the user's own token cannot be made: %w; give one by %s", err, TokenFileVar)
		}
	}
	return readToken(path)
}

// makeToken writes a new token, unless another process has already done so.
func makeToken(dir, path string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // rand.Read never fails
	f, err := os.CreateTemp(dir, ".token-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(secret) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// A link appears complete or not at all, and only one process can make it.
	if err := os.Link(f.Name(), path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// readToken reads a token from a file. It refuses a regular file that other users can access, or that its group can
// change.
func readToken(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("launch: token: %w", err)
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o027 != 0 {
		return nil, fmt.Errorf("launch: token file %s can be read or changed by others (mode %v); chmod 600 it", path,
			info.Mode().Perm())
	}
	text, err := document.Read(path, 2*maxToken)
	if err != nil {
		return nil, fmt.Errorf("launch: token: %w", err)
	}
	return checkToken(text, "in "+path)
}

// checkToken returns a token without surrounding white space, and refuses one that is too short or too long.
func checkToken(text []byte, where string) ([]byte, error) {
	token := bytes.TrimSpace(text)
	if len(token) < minToken || len(token) > maxToken {
		return nil, fmt.Errorf("launch: the token %s has %d bytes; give one of %d to %d", where, len(token), minToken,
			maxToken)
	}
	return token, nil
}
