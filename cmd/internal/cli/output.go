package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-ml/millrace/internal/names"
)

// writtenTo marks a flag that names an output file of the verb. writtenAs lists which of the endings in `made` this
// file may have. Both are annotations.
const writtenTo, writtenAs = "written to", "written as"

// made lists the endings of files that users write or collect themselves: models, clusters, data, weights, programs.
var made = []string{".csv", ".go", ".npy", ".npz", ".pt", ".pt2", ".py", ".safetensors", ".yaml", ".yml"}

// Writes marks flags that name output files. checkOutputs checks before the work whether these can be written.
func Writes(c *cobra.Command, flags ...string) {
	for _, name := range flags {
		note(c.Flags().Lookup(name), writtenTo)
	}
}

// WritesEither marks a flag that names an output file, or a folder that may exist already.
func WritesEither(c *cobra.Command, flag string) {
	note(c.Flags().Lookup(flag), writtenTo, "folder")
}

// WritesAs says which of the endings in `made` a flag's output file may have. checkOutputs refuses to replace an
// existing file that has another ending in `made`.
func WritesAs(c *cobra.Command, flag string, endings ...string) {
	note(c.Flags().Lookup(flag), writtenAs, endings...)
}

// output is an output file of a verb. `was` is its state before the verb ran, or nil if the file did not exist.
type output struct {
	path string
	was  os.FileInfo
}

// checkOutputs refuses output files that the verb could not write. It also records their state before the verb runs,
// for the message after a signal.
func checkOutputs(c *cobra.Command, args []string) error {
	var refused error
	var outputs []output
	c.Flags().Visit(func(f *pflag.Flag) {
		either, ok := f.Annotations[writtenTo]
		if !ok || refused != nil || f.Value.String() == "" {
			return
		}
		was, err := os.Stat(f.Value.String())
		outputs = append(outputs, output{f.Value.String(), was})
		if err == nil && was.IsDir() && len(either) > 0 {
			return
		}
		err = CheckFile("--"+f.Name, f.Value.String())
		if over := c.Flags().Lookup("overwrite"); err == nil && was != nil && (over == nil || !over.Changed) {
			err = keeps(f, was, args)
		}
		refused = BadInput(err)
	})
	if s, ok := c.Context().Value(stopperKey{}).(*stopper); ok {
		s.mu.Lock()
		s.before = outputs
		s.mu.Unlock()
	}
	return refused
}

// keeps refuses to replace a file that the verb reads as an argument. It also refuses to replace a file whose ending is
// in `made`, unless the verb's own files may have this ending, or the file is JSON: an earlier output may have any
// name.
func keeps(f *pflag.Flag, was os.FileInfo, args []string) error {
	path := f.Value.String()
	for _, arg := range args {
		if input, err := os.Stat(arg); err == nil && os.SameFile(input, was) {
			return fmt.Errorf("--%s %s: this verb reads that file; give another --%s", f.Name, path, f.Name)
		}
	}
	ending := strings.ToLower(filepath.Ext(path))
	if !slices.Contains(made, ending) || slices.Contains(f.Annotations[writtenAs], ending) || isJSON(path) {
		return nil
	}
	return fmt.Errorf("--%s %s: it is there, and what this verb writes is no %s file; give another --%s, or remove it "+
		"first", f.Name, path, ending, f.Name)
}

// isJSON reports whether a file begins like a JSON object.
func isJSON(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	first := []byte{0}
	_, err = f.Read(first)
	return err == nil && first[0] == '{'
}

// Wrote prints which files a verb has written; it skips empty names.
func Wrote(w io.Writer, files ...string) error {
	for _, file := range files {
		if file == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "wrote %s\n", names.Shown(file)); err != nil {
			return err
		}
	}
	return nil
}

// longestName is the maximal length of a file's name, in bytes. It leaves room for the longer name of the temporary
// file that is renamed to it.
const longestName = 240

// CheckFile refuses a path to which no file can be written. It leaves nothing on the disk.
func CheckFile(flag, path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s %s: it is a folder; give a file in it", flag, path)
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s %s: it is no plain file; give one that can be written over", flag, path)
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("%s %s: %s is no folder; make it first", flag, path, dir)
	}
	if name := filepath.Base(path); len(name) > longestName {
		return fmt.Errorf("%s: the file's name is too long: it has %d bytes; give one of %d at most",
			flag, len(name), longestName)
	}
	return CheckFolder(flag, dir)
}

// CheckFolder refuses a folder in which files cannot be created. If the folder does not exist, it checks the nearest
// parent that does. It leaves nothing on the disk.
func CheckFolder(flag, dir string) error {
	at := filepath.Clean(dir)
	for {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			return BadInput(fmt.Errorf("%s %s: %s is a file; give a folder", flag, dir, at))
		}
		if err == nil {
			break
		}
		up := filepath.Dir(at)
		if info, above := os.Stat(up); up == at || above == nil && info.IsDir() && !errors.Is(err, fs.ErrNotExist) {
			return BadInput(fmt.Errorf("%s: %w", flag, err))
		}
		at = up
	}
	probe, err := os.CreateTemp(at, ".millrace-*")
	if err != nil {
		return BadInput(fmt.Errorf("%s %s: %w; give a folder that can be written to", flag, dir, errors.Unwrap(err)))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}
