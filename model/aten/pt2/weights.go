package pt2

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

// stored says where in the file the elements of a tensor are.
type stored struct {
	kind    kindOf
	shape   []int64
	strides []int64 // in elements
	trained bool
	member  string
	first   int64 // offset of the first element in the member, in bytes
	whole   int64 // size of the member, in bytes
	at      int64 // offset of the first element in the file, in bytes
	span    int64 // bytes from the first element to the end of the last
}

// contiguous says whether elements are row by row, without gaps.
func (s stored) contiguous() bool {
	next := int64(1)
	for i := len(s.shape) - 1; i >= 0; i-- {
		if s.shape[i] != 1 && s.strides[i] != next {
			return s.span == 0
		}
		next *= s.shape[i]
	}
	return true
}

// bytes returns the size of all elements.
func (s stored) bytes() int64 {
	size := s.kind.bytes
	for _, d := range s.shape {
		size *= d
	}
	return size
}

// gather copies elements out of the bytes that contain them, and puts them into the order row by row.
func (s stored) gather(from []byte) []byte {
	size := s.kind.bytes
	to := make([]byte, 0, s.bytes())
	index := make([]int64, len(s.shape))
	for at := int64(0); len(to) < cap(to); {
		to = append(to, from[at*size:(at+1)*size]...)
		for i := len(index) - 1; i >= 0; i-- {
			index[i]++
			at += s.strides[i]
			if index[i] < s.shape[i] {
				break
			}
			at -= index[i] * s.strides[i]
			index[i] = 0
		}
	}
	return to
}

// view describes the part of a storage that a tensor uses. The text is the same for all names of a tensor.
func (s stored) view() string {
	return fmt.Sprint(s.first, s.kind.dtype, s.shape, s.strides, " ", s.member)
}

// weights describes the tensors of an archive that have elements.
type weights struct {
	archive *archive
	listed  map[string]folderPayload // all tensors in the archive's lists, by name
	tensors map[string]stored        // the graph's tensors, by name
	views   map[string]string        // by view: the name of the first of the graph's tensors with these elements
	owner   map[string]string        // for a second name of a tensor: its first name
}

type folderPayload struct {
	payload
	folder string
}

// newWeights reads the lists of weights and constants.
func newWeights(a *archive) (*weights, error) {
	w := &weights{archive: a, listed: map[string]folderPayload{}, tensors: map[string]stored{},
		views: map[string]string{}, owner: map[string]string{}}
	for _, from := range []struct{ folder, list string }{
		{"data/weights/", "_weights_config.json"}, {"data/constants/", "_constants_config.json"},
	} {
		member := from.folder + a.name + from.list
		if a.members[member] == nil && from.folder == "data/constants/" {
			continue
		}
		var list payloads
		if err := a.decode(member, &list); err != nil {
			return nil, err
		}
		for name, p := range list.Config {
			if _, twice := w.listed[name]; twice {
				return nil, fmt.Errorf("%s: %s is among the weights too", member, name)
			}
			w.listed[name] = folderPayload{p, from.folder}
		}
	}
	return w, nil
}

// take finds the elements of a tensor. If an earlier tensor has the same elements, it also returns that tensor's name.
func (w *weights) take(name string) (stored, string, error) {
	p, ok := w.listed[name]
	if !ok {
		return stored{}, "", fmt.Errorf("it is in neither data/weights/%s_weights_config.json nor the list of constants",
			w.archive.name)
	}
	s, err := w.find(p)
	if err != nil {
		return s, "", err
	}
	if other, ok := w.views[s.view()]; ok && s.span > 0 {
		if s.first+s.span < s.whole { // some versions of torch wrote storage_offset 0 for every view
			return s, "", fmt.Errorf("it and %s are said to lie at one place of %s, which has more than one tensor: "+
				"clone() both in the module", other, s.member)
		}
		w.owner[name] = other
		return s, other, nil
	}
	w.tensors[name] = s
	w.views[s.view()] = name
	return s, "", nil
}

// find says where the elements of a tensor are. It refuses a description that does not fit the member with the
// elements.
func (w *weights) find(p folderPayload) (s stored, err error) {
	if p.Pickle {
		return s, fmt.Errorf("its elements are a pickle (use_pickle of %.80s), which is never read: make it a plain tensor "+
			"with .detach().clone() before torch.export", p.Path)
	}
	if p.Meta == nil {
		return s, fmt.Errorf("its tensor_meta is missing")
	}
	if !fs.ValidPath(p.Path) || strings.Contains(p.Path, "/") {
		return s, fmt.Errorf("its path_name is %.80q: it is a file's name in %s", p.Path, p.folder)
	}
	if p.Meta.Layout != strided {
		return s, fmt.Errorf("its layout is number %d of the schema: only strided ones (7) are read; use to_dense()",
			p.Meta.Layout)
	}
	if s.kind, err = findKind(p.Meta.DType); err != nil {
		return s, err
	}
	if s.shape, err = fixed("sizes", p.Meta.Sizes); err != nil {
		return s, err
	}
	if s.strides, err = fixed("strides", p.Meta.Strides); err != nil {
		return s, err
	}
	if len(s.strides) != len(s.shape) {
		return s, fmt.Errorf("it has %d sizes and %d strides", len(s.shape), len(s.strides))
	}
	offset, err := fixed("storage_offset", []union{p.Meta.Offset})
	if err != nil {
		return s, err
	}
	s.member, s.trained = p.folder+p.Path, p.Meta.Grad
	start, size, err := w.archive.locate(s.member)
	if err != nil {
		return s, err
	}
	s.whole = size
	count, err := countOf(s.shape)
	if err != nil || count == 0 {
		return s, err
	}
	if size == 0 {
		return s, fmt.Errorf("%s is empty, its shape is %v: the model was saved without weights (fake tensors)",
			s.member, s.shape)
	}
	last := offset[0] // offsets and strides are at most maxCount, so sums cannot overflow
	for i, d := range s.shape {
		if d > 1 && s.strides[i] > (maxCount-min(last, maxCount))/(d-1) {
			last = maxCount
			break
		}
		last += (d - 1) * s.strides[i]
	}
	if last >= size/s.kind.bytes || count > size/s.kind.bytes {
		return s, fmt.Errorf("its shape %v with strides %v from element %d is more than the %d bytes of %s "+
			"(a view that repeats elements: make it contiguous in the module)",
			s.shape, s.strides, offset[0], size, s.member)
	}
	s.first, s.span = offset[0]*s.kind.bytes, (last-offset[0]+1)*s.kind.bytes
	s.at = start + s.first
	return s, nil
}

const strided = 7 // number of the layout in the schema

// fixed returns numbers that must not depend on inputs.
func fixed(what string, from []union) ([]int64, error) {
	if len(from) > maxDims {
		return nil, fmt.Errorf("its %s has %d numbers: at most %d", what, len(from), maxDims)
	}
	numbers := make([]int64, len(from))
	for i, u := range from {
		s, err := sizeOf(u)
		if err != nil {
			return nil, fmt.Errorf("its %s: %w", what, err)
		}
		if s.symbol != "" {
			return nil, fmt.Errorf("its %s depends on inputs (%.80s): only numbers are read", what, s.symbol)
		}
		if s.value < 0 || s.value > maxCount {
			return nil, fmt.Errorf("its %s has %d: 0 to %d are possible", what, s.value, int64(maxCount))
		}
		numbers[i] = s.value
	}
	return numbers, nil
}

// checkOverlaps refuses tensors that share only a part of their elements, since they would be trained separately.
func (w *weights) checkOverlaps() error {
	order := slices.SortedFunc(maps.Keys(w.tensors), func(a, b string) int {
		s, t := w.tensors[a], w.tensors[b]
		return cmp.Or(cmp.Compare(s.member, t.member), cmp.Compare(s.first, t.first), cmp.Compare(a, b))
	})
	var before string // the tensor before this one in the file; it reaches farthest so far
	for _, name := range order {
		s, t := w.tensors[name], w.tensors[before]
		if s.span == 0 {
			continue
		}
		if before != "" && s.member == t.member && s.first < t.first+t.span {
			return fmt.Errorf("%s and %s share some of %s, and would train apart: make one a view of the other in "+
				"forward, or clone() it", before, name, s.member)
		}
		before = name
	}
	return nil
}

// rest finds the tensors that are only in the list of weights. The result `others` has further names of the graph's
// tensors. The result `unused` has the names of tensors that the graph does not use.
func (w *weights) rest(known map[string]aten.Tensor) (others, unused []string) {
	for name, p := range w.listed {
		if _, ok := known[name]; ok || w.owner[name] != "" || p.Pickle || p.folder != "data/weights/" {
			continue
		}
		s, err := w.find(p)
		other, ok := w.views[s.view()]
		if err != nil || !ok || s.span == 0 {
			unused = append(unused, name)
			continue
		}
		w.owner[name] = other
		others = append(others, name)
	}
	slices.Sort(others)
	slices.Sort(unused)
	return others, unused
}
