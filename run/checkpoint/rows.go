package checkpoint

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model"
)

// section is a tensor of one file. It is a whole tensor of the checkpoint, or, if stages divide the layer, the rows
// that one of these stages has saved.
type section struct {
	part       int    // index of the file
	name       string // its name in the file
	first, end int    // rows; 0 and 0 mean all
}

// rowNames holds the parameters by name. It recognises the names of tensors that are rows of a parameter.
type rowNames map[string]*Parameter

func (m *Manifest) rowNames() rowNames {
	all := rowNames{}
	for i := range m.Parameters {
		all[m.Parameters[i].Name] = &m.Parameters[i]
	}
	return all
}

var ofPipeline = regexp.MustCompile(`^pipeline-\d+/`)

// of splits the name of a file's tensor. It returns the whole tensor's name, the rows [first, end), and the parameter
// that has these rows. If the name is not a name for rows of a parameter, `param` is nil and `whole` is the given name.
func (r rowNames) of(name string) (whole string, first, end int, param *Parameter) {
	prefix := ofPipeline.FindString(name)
	own, state, kept := strings.Cut(name[len(prefix):], "#")
	if r[own] != nil {
		return name, 0, 0, nil
	}
	base, first, end, ok := model.PartOf(own)
	if param = r[base]; !ok || param == nil {
		return name, 0, 0, nil
	}
	if kept {
		base += "#" + state
	}
	return prefix + base, first, end, param
}

// rows returns the shape of the parameter's rows [first, end).
func (p *Parameter) rows(first, end int) []int64 {
	if len(p.Shape) == 0 {
		return nil
	}
	shape := slices.Clone(p.Shape)
	shape[0] = int64(end - first)
	return shape
}

// put adds a section to the sections of its tensor, in the order of rows. If the new section overlaps one of them, put
// does not add it, and returns the other one as `twice`.
func put(all []section, s section) (more []section, twice *section) {
	for i, o := range all {
		if o.end == 0 || s.end == 0 || s.first < o.end && o.first < s.end {
			return all, &all[i]
		}
	}
	at, _ := slices.BinarySearchFunc(all, s, func(a, b section) int { return cmp.Compare(a.first, b.first) })
	return slices.Insert(all, at, s), nil
}

// missing returns a text about the rows of the parameter that the sections lack; empty if they have all rows.
func (p *Parameter) missing(in []section) string {
	next := 0
	for _, s := range in {
		if s.first > next {
			break
		}
		next = s.end
	}
	if len(p.Shape) > 0 && int64(next) >= p.Shape[0] {
		return ""
	}
	return fmt.Sprintf("rows from %d on are in no file; the model has %v", next, p.Shape)
}

// join replaces the rows of a parameter in `read` by the whole parameter. It returns what is wrong: rows that are
// duplicate or do not fit. If `all` is set, `read` has the tensors of all files, and join also reports missing rows.
func (r rowNames) join(read map[string]entry, all bool) (wrong []string) {
	found, of := map[string][]section{}, map[string]*Parameter{}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		tensor, first, end, param := r.of(name)
		if param == nil {
			continue
		}
		e := read[name]
		delete(read, name)
		if _, there := read[tensor]; there && of[tensor] == nil {
			wrong = append(wrong, fmt.Sprintf("tensor %s is there, and its rows as %s", tensor, name))
			continue
		}
		sections, twice := put(found[tensor], section{name: name, first: first, end: end})
		found[tensor], of[tensor] = sections, param
		switch {
		case twice != nil:
			wrong = append(wrong, fmt.Sprintf("tensor %s: %s and %s have the same rows", tensor, twice.name, name))
		case !slices.Equal(e.Shape, param.rows(first, end)):
			wrong = append(wrong, fmt.Sprintf("tensor %s is %s%v; the model has %v", name, e.DType, e.Shape, param.Shape))
		}
		if known, is := read[tensor]; is && known.DType != e.DType {
			wrong = append(wrong, fmt.Sprintf("tensor %s is of type %s; others of its rows are %s", name, e.DType,
				known.DType))
		}
		read[tensor] = entry{DType: e.DType, Shape: param.Shape}
	}
	for _, tensor := range slices.Sorted(maps.Keys(found)) {
		if rows := of[tensor].missing(found[tensor]); rows != "" && all {
			wrong = append(wrong, fmt.Sprintf("tensor %s: %s", tensor, rows))
		}
	}
	return wrong
}

// described returns the type and shape of a tensor, and where it is stored.
func (c *Checkpoint) described(name string) (dtype string, shape []int64, in []section, err error) {
	in = c.where[name]
	if len(in) == 0 {
		return "", nil, nil, fmt.Errorf("checkpoint: %s: there is no tensor %q", c.Path, name)
	}
	for i, s := range in {
		p := c.parts[s.part]
		if err := p.begin(c.ctx); err != nil {
			return "", nil, nil, fmt.Errorf("checkpoint: %s: %w", p.want.Name, err)
		}
		e := p.index.entries[s.name]
		if s.end == 0 {
			return e.DType, e.Shape, in, nil
		}
		_, _, _, param := c.names.of(s.name)
		if i == 0 {
			dtype, shape = e.DType, param.Shape
			if rows := param.missing(in); rows != "" {
				return "", nil, nil, fmt.Errorf("checkpoint: %s: tensor %s: %s", c.Path, name, rows)
			}
		}
		if e.DType != dtype || !slices.Equal(e.Shape, param.rows(s.first, s.end)) {
			return "", nil, nil, fmt.Errorf("checkpoint: %s: %s is %s%v; the model has %s%v", p.want.Name, s.name, e.DType,
				e.Shape, dtype, param.Shape)
		}
	}
	return dtype, shape, in, nil
}

// copyTo writes the elements of sections, which the method described has returned.
func (c *Checkpoint) copyTo(w io.Writer, in []section) error {
	for _, s := range in {
		p := c.parts[s.part]
		at := p.index.entries[s.name].Offsets
		if _, err := io.Copy(w, io.NewSectionReader(p.from, p.index.start+at[0], at[1]-at[0])); err != nil {
			return fmt.Errorf("checkpoint: tensor %q: %w", s.name, err)
		}
	}
	return nil
}
