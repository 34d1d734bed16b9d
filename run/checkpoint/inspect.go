package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Seen describes a checkpoint in a folder, using only its manifest and the names and lengths of its files.
type Seen struct {
	Path     string
	Steps    int
	Manifest *Manifest         // nil if Wrong is set
	Missing  map[string]string // by file: why the file is missing here
	Wrong    string            // why there is no manifest
}

// Folder returns the checkpoint folder for a path. The path may be a run's folder or a checkpoint folder. A path to a
// single checkpoint is returned as it is.
func Folder(path string) string {
	if info, err := os.Stat(filepath.Join(path, "checkpoints")); err == nil && info.IsDir() {
		return filepath.Join(path, "checkpoints")
	}
	return path
}

// Inspect returns the checkpoints at a path, oldest first; see Folder.
func Inspect(path string) ([]Seen, error) {
	path = named(Folder(path))
	found := []saved{{path: path}}
	if steps, one := stepsOf(filepath.Base(path)); one {
		found[0].steps = steps
		if _, err := os.Stat(path); err != nil {
			return nil, &noneError{fmt.Sprintf("checkpoint: there is no %s; "+remedy, path)}
		}
	} else {
		var err error
		if found, err = list(path); errors.Is(err, os.ErrNotExist) {
			return nil, &noneError{fmt.Sprintf("checkpoint: there is no %s; "+remedy, path)}
		} else if err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, noneIn(path)
	}
	var all []Seen
	for _, f := range found {
		all = append(all, see(f))
	}
	return all, nil
}

// see describes one checkpoint.
func see(at saved) Seen {
	s := Seen{Path: at.path, Steps: at.steps, Missing: map[string]string{}}
	_, m, err := readManifest(filepath.Join(at.path, manifestName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		s.Wrong = fmt.Sprintf("it has no %s: it is none, or not whole", manifestName)
	case err != nil:
		s.Wrong = fmt.Sprintf("%s: %v", manifestName, unnamed(err))
	case m.Steps != at.steps:
		s.Wrong = fmt.Sprintf("%s: steps is %d, and the folder is that of %d steps", manifestName, m.Steps, at.steps)
	default:
		s.Manifest = m
		for _, f := range m.Files {
			if why := f.absent(at.path); why != "" {
				s.Missing[f.Name] = why
			}
		}
	}
	return s
}

// absent returns why a directory lacks this file with the right length, or "" if the directory has it.
func (f File) absent(dir string) string {
	one, err := openFile(filepath.Join(dir, f.Name), f)
	switch {
	case err == nil:
		_ = one.Close() // nothing was written, so an error does not matter
		return ""
	case errors.Is(err, os.ErrNotExist) && f.Host != "":
		return "not here; host " + f.Host + " has written it"
	case errors.Is(err, os.ErrNotExist):
		return "not here"
	}
	return unnamed(err).Error()
}

// Bytes returns the length of all files together, wherever they are.
func (m *Manifest) Bytes() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Bytes
	}
	return n
}

// Hosts returns the hosts that have written the files, if known.
func (m *Manifest) Hosts() []string {
	hosts := map[string]bool{}
	for _, f := range m.Files {
		if f.Host != "" {
			hosts[f.Host] = true
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

// Verify reads every byte of a checkpoint and returns everything that is wrong with it; nil means nothing. It checks
// checksums and headers, and reports duplicate tensors. If the manifest lists the model's parameters, it also reports
// tensors that are missing, not of the model, or of another type or shape. It cannot tell which tensors are missing
// while a file is missing or damaged.
func (s *Seen) Verify() []string {
	if s.Manifest == nil {
		return []string{s.Wrong}
	}
	var wrong []string
	read := map[string]entry{}
	in := map[string]string{}
	whole := true
	for _, f := range s.Manifest.Files {
		at, err := openFile(filepath.Join(s.Path, f.Name), f)
		var x *Index
		if err == nil {
			if err = at.check(context.Background()); err == nil {
				x, err = ReadIndex(at, f.Bytes)
			}
			err = errors.Join(err, at.Close())
		}
		if err != nil {
			whole = false
			why := unnamed(err).Error()
			if missing := s.Missing[f.Name]; missing != "" {
				why = missing
			}
			wrong = append(wrong, f.Name+": "+why)
			continue
		}
		if len(x.names) != f.Tensors {
			wrong = append(wrong, fmt.Sprintf("%s: %d tensors; the manifest says %d", f.Name, len(x.names), f.Tensors))
		}
		for _, name := range x.names {
			if other, twice := in[name]; twice {
				wrong = append(wrong, fmt.Sprintf("tensor %s is in %s and in %s", name, other, f.Name))
			}
			read[name], in[name] = x.entries[name], f.Name
		}
	}
	wrong = append(wrong, s.Manifest.rowNames().join(read, whole)...)
	return append(wrong, s.Manifest.compare(read, whole)...)
}

// compare compares tensors with the parameters of the model. It reports missing tensors only if the whole checkpoint
// was read.
func (m *Manifest) compare(read map[string]entry, whole bool) []string {
	if m.Parameters == nil {
		return nil
	}
	if n := m.Pipelines(); n > 1 && whole && n > len(read) {
		return []string{fmt.Sprintf("the plan is of %d pipelines side by side, and there are %d tensors", n, len(read))}
	} else if n > len(read) {
		return nil
	}
	var wrong []string
	want := m.tensors()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		got, there := read[name]
		switch {
		case !there && whole:
			wrong = append(wrong, fmt.Sprintf("tensor %s is in no file", name))
		case there && (got.DType != want[name].DType || !slices.Equal(got.Shape, want[name].Shape)):
			wrong = append(wrong, fmt.Sprintf("tensor %s is %s%v; the model has %s%v", name, got.DType, got.Shape,
				want[name].DType, want[name].Shape))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		if _, known := want[name]; !known {
			wrong = append(wrong, fmt.Sprintf("tensor %s is of no parameter of the model", name))
		}
	}
	return wrong
}

// tensors returns the types and shapes of all tensors of a complete checkpoint. Each parameter has values and the
// optimizer's states; each buffer has only values. If several pipelines train in parallel, each has its own values and
// states, and their reference has only values.
func (m *Manifest) tensors() map[string]entry {
	all := map[string]entry{}
	add := func(of string, states []string) {
		for _, p := range m.Parameters {
			all[of+p.Name] = entry{DType: m.elementOf(p), Shape: p.Shape}
			if p.Buffer {
				continue
			}
			for _, state := range states {
				all[of+p.Name+"#"+state] = entry{DType: m.Float, Shape: p.Shape}
			}
		}
	}
	n := m.Pipelines()
	if n == 1 {
		add("", m.Optimizer.States())
		return all
	}
	add("", nil)
	for p := range n {
		add(PipelinePrefix(p), m.Optimizer.States())
	}
	return all
}

// PipelinePrefix returns the prefix of the names of a pipeline's tensors if several train in parallel.
func PipelinePrefix(pipeline int) string { return fmt.Sprintf("pipeline-%d/", pipeline) }

// Export writes all parameters and buffers that the model saves to one safetensors file. Each is written under all of
// its names. Parameters have the values that evaluations use, for instance ASGD's averages. If optimizer is set, they
// have the values for resuming instead, and the file also has the optimizer's states and each pipeline's tensors.
func (c *Checkpoint) Export(w io.Writer, optimizer bool) error {
	of := map[string]Parameter{}
	for _, p := range c.Manifest.Parameters {
		of[p.Name] = p
	}
	var all []Tensor
	from := map[string][]section{} // by the name that is written
	for _, name := range c.Names() {
		param, known := of[name]
		weight := known || len(of) == 0 && !strings.ContainsAny(name, "#/") // older manifests list no parameters
		if !weight && !optimizer || param.Inner {
			continue
		}
		values := name
		shown := name + "#" + c.Manifest.Optimizer.Shown()
		if _, kept := c.where[shown]; kept && !optimizer && c.Manifest.Steps > 0 {
			values = shown
		}
		dtype, shape, in, err := c.described(values)
		if err != nil {
			return err
		}
		for _, written := range append([]string{name}, param.Also...) {
			all = append(all, Tensor{Name: written, DType: dtypes[dtype], Shape: shape})
			from[written] = in
		}
	}
	if err := writeHeader(w, all, map[string]string{"format": "pt"}); err != nil {
		return err
	}
	for _, t := range all {
		if err := c.copyTo(w, from[t.Name]); err != nil {
			return err
		}
	}
	return nil
}
