package pretrained

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/safetensors"
)

// Names of the files in a published folder.
const (
	oneFile    = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
	configFile = "config.json"
)

// Limits of what is read besides tensors.
const (
	mostText   = 64 << 20 // bytes of an index or a configuration
	mostHeader = 64 << 20 // bytes of the header of a file
	mostParts  = 4096     // files of one model
)

// types lists the element types that files may have.
var types = []string{"F32", "F16", "BF16", "F64", "I64", "I32", "I16", "I8", "U8", "BOOL"}

// entry is a tensor and where its elements begin in a file.
type entry struct {
	safetensors.Entry
	path string
	at   int64
}

// files holds the tensors of a file, or of several parts, by name.
type files struct {
	entries map[string]entry
	folder  string
}

// Files lists the files that Open reads for a path: the files with tensors, and the index and config.json if they
// exist.
func Files(path string) []string {
	parts, folder, err := partsOf(path)
	if err != nil {
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		all = append(all, filepath.Join(folder, name))
	}
	for _, extra := range []string{path, filepath.Join(folder, indexFile), filepath.Join(folder, configFile)} {
		if info, err := os.Stat(extra); err == nil && info.Mode().IsRegular() && !slices.Contains(all, extra) {
			all = append(all, extra)
		}
	}
	return all
}

// partsOf returns the files that belong to a path, and their folder. If there is an index, `parts` has the names of
// each file's tensors, as the index lists them. Otherwise `parts` has nil for the file.
func partsOf(path string) (parts map[string][]string, folder string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", bare(err)
	}
	folder, name := filepath.Split(path)
	if info.IsDir() {
		folder, name = path, indexFile
		if _, err := os.Stat(filepath.Join(folder, name)); errors.Is(err, fs.ErrNotExist) {
			name, err = only(folder)
			if err != nil {
				return nil, "", err
			}
		}
	}
	if !strings.HasSuffix(name, ".json") {
		return map[string][]string{name: nil}, folder, nil
	}
	parts, err = readIndex(filepath.Join(folder, name))
	return parts, folder, err
}

// only returns a folder's model.safetensors or, if there is none, its single safetensors file.
func only(folder string) (string, error) {
	listed, err := os.ReadDir(folder)
	if err != nil {
		return "", bare(err)
	}
	var found []string
	for _, e := range listed {
		if e.Name() == oneFile {
			return oneFile, nil
		}
		if strings.HasSuffix(e.Name(), ".safetensors") {
			found = append(found, e.Name())
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("it has neither %s nor %s, and %d files of that kind; give one of its files", oneFile,
			indexFile, len(found))
	}
	return found[0], nil
}

// readIndex returns the names of the tensors in each part, as an index lists them.
func readIndex(path string) (map[string][]string, error) {
	text, err := document.Read(path, mostText)
	if err != nil {
		return nil, bare(err)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%s has no weight_map, which says in which file each tensor is", filepath.Base(path))
	}
	parts := map[string][]string{}
	for name, file := range index.WeightMap {
		if file == "" || file != filepath.Base(file) || !filepath.IsLocal(file) || strings.ContainsAny(file, `/\`) {
			return nil, fmt.Errorf("%s: weight_map has %.200q in %.200q; it is a file of the same folder", filepath.Base(path),
				name, file)
		}
		parts[file] = append(parts[file], name)
	}
	if len(parts) > mostParts {
		return nil, fmt.Errorf("%s: weight_map names %d files; at most %d are read", filepath.Base(path), len(parts),
			mostParts)
	}
	return parts, nil
}

// find reads the headers of all files that belong to a path.
func find(path string) (*files, error) {
	parts, folder, err := partsOf(path)
	if err != nil {
		return nil, err
	}
	f := &files{map[string]entry{}, folder}
	for _, file := range slices.Sorted(maps.Keys(parts)) {
		if err := f.read(filepath.Join(folder, file), parts[file]); err != nil {
			if len(parts) > 1 {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			return nil, err
		}
	}
	return f, nil
}

// read adds the tensors of one file. If there is an index, the file must have exactly the tensors that the index lists
// for it.
func (f *files) read(path string, named []string) error {
	file, err := document.Open(path)
	if err != nil {
		return bare(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return bare(err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is read more than once; give a regular file")
	}
	x, err := safetensors.ReadIndex(file, info.Size(), mostHeader, types...)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, name := range named {
		wanted[name] = true
	}
	for name, e := range x.Entries {
		if _, twice := f.entries[name]; twice {
			return fmt.Errorf("tensor %.200q is in another file of the index, too", name)
		}
		if named != nil && !wanted[name] {
			return fmt.Errorf("tensor %.200q is not in the weight_map of the index", name)
		}
		f.entries[name] = entry{e, path, x.Start + e.Offsets[0]}
	}
	for _, name := range named {
		if _, there := x.Entries[name]; !there {
			return fmt.Errorf("tensor %.200q is not there, where the weight_map of the index has it", name)
		}
	}
	return nil
}

// same refuses two tensors that differ in type, shape or bytes.
func (f *files) same(a, b string) error {
	one, other := f.entries[a], f.entries[b]
	if one.DType != other.DType || !slices.Equal(one.Shape, other.Shape) {
		return fmt.Errorf("%s is %s%v and %s is %s%v", a, one.DType, one.Shape, b, other.DType, other.Shape)
	}
	var readers [2]io.Reader
	for i, e := range []entry{one, other} {
		file, err := document.Open(e.path)
		if err != nil {
			return bare(err)
		}
		defer file.Close()
		readers[i] = io.NewSectionReader(file, e.at, e.Offsets[1]-e.Offsets[0])
	}
	var parts [2][]byte
	for i := range parts {
		parts[i] = make([]byte, 1<<20)
	}
	for left := one.Offsets[1] - one.Offsets[0]; left > 0; {
		n := min(left, int64(len(parts[0])))
		for i, r := range readers {
			if _, err := io.ReadFull(r, parts[i][:n]); err != nil {
				return err
			}
		}
		if !bytes.Equal(parts[0][:n], parts[1][:n]) {
			return fmt.Errorf("%s and %s have other values", a, b)
		}
		left -= n
	}
	return nil
}

// config reads the configuration in the folder of the tensors into a pointer, and returns whether there is one.
func (f *files) config(into any) (bool, error) {
	text, err := document.Read(filepath.Join(f.folder, configFile), mostText)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = unmarshal(text, into)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", configFile, bare(err))
	}
	return true, nil
}

// unmarshal reads JSON. If a value has a wrong type, the error says where it is and what would be right.
func unmarshal(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	var of *json.UnmarshalTypeError
	if !errors.As(err, &of) {
		return err
	}
	right := "an object"
	switch of.Type.Kind() {
	case reflect.Int:
		right = "a whole number"
	case reflect.Float64:
		right = "a number"
	case reflect.Bool:
		right = "true or false"
	case reflect.String:
		right = "a text"
	}
	return fmt.Errorf("%s is a JSON %s, and %s is right", cmp.Or(of.Field, "all of it"), of.Value, right)
}

// bare returns a short form of a system's error, without the path.
func bare(err error) error {
	var path *fs.PathError
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such file; give a .safetensors file, or a folder of them")
	}
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
