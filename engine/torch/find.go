package torch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace-ml/millrace/native"
)

// libraryName is the shim's file name in folders that only one build of millrace uses.
const libraryName = "libmillrace_native.so"

// Find looks for the compiled shim. If MILLRACE_NATIVE is set, it looks only there. Otherwise it looks beside the
// binary, in ../build from there, in the user's cache (for a shim built from this binary's sources), and in build/ of a
// millrace source tree around the working directory. If there is no shim, `path` is "". The list `tried` holds the
// paths that were tried, in order.
func Find() (path string, tried []string) {
	for _, p := range candidates() {
		tried = append(tried, p)
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			return p, tried
		}
	}
	return "", tried
}

func candidates() []string {
	if p := os.Getenv("MILLRACE_NATIVE"); p != "" {
		return []string{p}
	}
	var all []string
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dir := filepath.Dir(exe)
		all = append(all, filepath.Join(dir, libraryName), filepath.Join(filepath.Dir(dir), "build", libraryName))
	}
	if p, err := CachePath(); err == nil {
		all = append(all, p)
	}
	if dir, err := os.Getwd(); err == nil {
		if root := sourceTree(dir); root != "" {
			all = append(all, filepath.Join(root, "build", libraryName))
		}
	}
	return all
}

// sameSources refuses a shim that was compiled from other sources than this binary embeds. The operators of such a shim
// may take other arguments.
func sameSources(path, sources string) error {
	if want := sourceHash(); sources != want {
		return fmt.Errorf("engine torch: load %s: it was compiled from other sources (%.12s) than this millrace has (%s); %s",
			path, sources, want, again(path))
	}
	return nil
}

// again says how to compile a shim again.
func again(path string) string {
	return fmt.Sprintf("compile it again with scripts/native.sh %s, as make build does, or remove it and run millrace "+
		"doctor --build", path)
}

// sourceTree returns the nearest folder at or above dir that holds millrace's own go.mod.
func sourceTree(dir string) string {
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(data, []byte("module github.com/millrace-ml/millrace\n")) {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// CachePath returns where Build puts the shim by default: a file in the user's cache, with a name that depends on
// the sources. So another version of millrace never loads it.
func CachePath() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "millrace", "libmillrace_native-"+sourceHash()+".so"), nil
}

// sourceHash returns twelve hexadecimal digits that identify the embedded sources. build.sh calculates the same.
func sourceHash() string {
	h := sha256.New()
	for _, of := range []string{"build.sh", "shim/*.h", "shim/*.cpp", "kernels/*.h", "kernels/*.cpp", "gloo/*.cpp"} {
		files, err := fs.Glob(native.Sources, of) // sorted by the bytes of their names
		for _, path := range files {
			var text []byte
			if text, err = native.Sources.ReadFile(path); err != nil {
				break
			}
			h.Write(text)
		}
		if err != nil {
			panic("engine torch: embedded sources cannot be read: " + err.Error())
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
