package checkpoint

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Survey is what a process finds of checkpoints in its folder, by names and lengths alone.
type Survey struct {
	Host    string  `json:"host,omitempty"` // as errors are to call it
	Copies  []Copy  `json:"copies,omitempty"`
	Files   []Held  `json:"files,omitempty"`
	Damaged []Fault `json:"damaged,omitempty"`
}

// Copy is a manifest that is under its checkpoint's name.
type Copy struct {
	Steps  int    `json:"steps"`
	SHA256 string `json:"sha256"` // of its text
	Files  []File `json:"files"`
}

// Held is a file, of a checkpoint or of a draft that a crash has left.
type Held struct {
	Steps int    `json:"steps"`
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Fault is a checkpoint whose manifest cannot be read, and why.
type Fault struct {
	Steps int    `json:"steps"`
	Why   string `json:"why"`
}

// Others asks every process, by rank, for Look, Text and Check of the same path.
type Others interface {
	Look() ([]Survey, error)
	Text(rank int, of Copy) (string, error)
	// Check names those files that are not as they were written, and why.
	Check(rank, steps int, files []File) (map[string]string, error)
}

// Spread is a checkpoint whose files are on several hosts: what every process is told of it.
type Spread struct {
	Manifest string         `json:"manifest"` // its text
	Where    map[string]int `json:"where"`    // by file, a process that has it
	// Passed is later checkpoints that are not whole, and why: such as a crash leaves, or a host that is missing.
	Passed []string `json:"passed,omitempty"`
}

// folder is where the checkpoints of a path are, and of how many steps the only one is that it names; -1: any.
func folder(path string) (string, int) {
	path = named(path)
	if steps, ok := stepsOf(filepath.Base(path)); ok {
		return filepath.Dir(path), steps
	}
	return path, -1
}

// Look surveys what is at a path: a checkpoint, or a folder of them. Where there is nothing it finds nothing.
func Look(path string) (Survey, error) {
	var s Survey
	dir, only := folder(path)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("checkpoint: %w", err)
	}
	for _, e := range entries {
		steps, ok := stepsOf(e.Name())
		if !ok || !e.IsDir() || only >= 0 && steps != only {
			continue
		}
		at := filepath.Join(dir, e.Name())
		if !strings.HasSuffix(e.Name(), partial) {
			text, m, err := readManifest(filepath.Join(at, manifestName))
			switch {
			case err != nil:
				s.Damaged = append(s.Damaged, Fault{steps, fmt.Sprintf("%s: %v", at, unnamed(err))})
			case m.Steps != steps:
				s.Damaged = append(s.Damaged, Fault{steps, fmt.Sprintf("%s: its manifest is of step %d", at, m.Steps)})
			default:
				s.Copies = append(s.Copies, Copy{steps, digest(text), m.Files})
			}
		}
		files, err := os.ReadDir(at)
		if err != nil {
			return s, fmt.Errorf("checkpoint: %w", err)
		}
		for _, f := range files {
			if info, err := os.Stat(filepath.Join(at, f.Name())); err == nil && info.Mode().IsRegular() {
				s.Files = append(s.Files, Held{steps, f.Name(), info.Size()})
			}
		}
	}
	return s, nil
}

// unnamed is an error without the path, which is said in front of it.
func unnamed(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Text is a manifest that Look has found at this path.
func Text(path string, of Copy) (string, error) {
	dir, _ := folder(path)
	for _, name := range []string{NameOf(of.Steps), NameOf(of.Steps) + replaced} {
		text, _, err := readManifest(filepath.Join(dir, name, manifestName))
		if err == nil && digest(text) == of.SHA256 {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("checkpoint: the manifest of step %d in %s has changed meanwhile", of.Steps, dir)
}

// Check holds files against their checksums, and says of those that are not as they were written why.
func Check(path string, steps int, files []File) map[string]string {
	dir, _ := folder(path)
	wrong := map[string]string{}
	for _, f := range files {
		one, err := lying(dir, steps, f)
		if err == nil {
			err = errors.Join(one.check(), one.Close())
		}
		if err != nil {
			wrong[f.Name] = err.Error()
		}
	}
	return wrong
}

// lying opens a file of a checkpoint, or of a draft of it, that has the right length; of several that have the one
// with the right checksum.
func lying(dir string, steps int, want File) (*local, error) {
	dirs, err := draftsOf(dir, steps)
	if err != nil {
		return nil, err
	}
	dirs = append([]string{filepath.Join(dir, NameOf(steps)), filepath.Join(dir, NameOf(steps)+replaced)}, dirs...)
	var first error
	var found []*local
	for _, at := range dirs {
		f, err := openFile(filepath.Join(at, want.Name), want)
		if err == nil {
			found = append(found, f)
		} else if first == nil || errors.Is(first, os.ErrNotExist) {
			first = err
		}
	}
	if len(found) == 0 {
		return nil, first
	}
	chosen := found[0]
	for _, f := range found[1:] {
		if chosen.check() != nil && f.check() == nil {
			chosen = f
		}
	}
	for _, f := range found {
		if f != chosen {
			_ = f.Close() // nothing was written
		}
	}
	return chosen, nil
}

// Among chooses the newest checkpoint that is whole over all processes together. One of which files are on no host
// is passed over: a crash between two hosts leaves such a one. One that has changed since it was written is not,
// and the error is a DamagedError.
func Among(path string, others Others) (*Spread, error) {
	surveys, err := others.Look()
	if err != nil {
		return nil, err
	}
	var passed []string
	var damaged []*candidate
	for _, c := range candidates(surveys) {
		where, missing := c.where(surveys)
		if missing != "" {
			passed = append(passed, missing)
			continue
		}
		if c.wrong == "" {
			if c.wrong, err = c.check(others, where); err != nil {
				return nil, err
			}
		}
		if c.wrong != "" {
			damaged = append(damaged, c)
			continue
		}
		dir, _ := folder(path)
		if len(damaged) > 0 && damaged[0].Steps > c.Steps { // else another of the same step was to give way to it
			return nil, &DamagedError{errors.New("checkpoint: " + damaged[0].wrong), filepath.Join(dir, NameOf(c.Steps))}
		}
		text, err := others.Text(c.at, c.Copy)
		if err != nil {
			return nil, err
		}
		s := &Spread{Manifest: text, Where: map[string]int{}, Passed: passed}
		for f, ranks := range where {
			s.Where[f] = ranks[0]
		}
		return s, nil
	}
	switch {
	case len(damaged) > 0:
		return nil, &DamagedError{Err: errors.New("checkpoint: " + damaged[0].wrong)}
	case len(passed) > 0:
		return nil, fmt.Errorf("checkpoint: no checkpoint of %s is whole over the hosts that are here: %s", path,
			strings.Join(passed, "; "))
	}
	return nil, &noneError{fmt.Sprintf("checkpoint: %s holds no %s directory on any host; "+remedy, path, prefix+"N")}
}

// candidate is a checkpoint that may be chosen.
type candidate struct {
	Copy
	at    int    // a process that has the manifest
	wrong string // why it cannot be read
}

// candidates is what all have found, the newest first; of one step those that can be read first.
func candidates(surveys []Survey) []*candidate {
	var all []*candidate
	seen := map[int]bool{}
	for at, s := range surveys {
		for _, c := range s.Copies {
			seen[c.Steps] = true
			same := func(o *candidate) bool { return o.Steps == c.Steps && o.SHA256 == c.SHA256 }
			if !slices.ContainsFunc(all, same) {
				all = append(all, &candidate{Copy: c, at: at})
			}
		}
	}
	for at, s := range surveys {
		for _, d := range s.Damaged {
			if !seen[d.Steps] {
				all = append(all, &candidate{Copy: Copy{Steps: d.Steps}, at: at, wrong: s.on(d.Why)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *candidate) int { return cmp.Compare(b.Steps, a.Steps) })
	return all
}

// on says of a text on which host it is so.
func (s *Survey) on(text string) string {
	if s.Host == "" {
		return text
	}
	return "on host " + s.Host + ": " + text
}

// where is the processes that have each file, or what is missing.
func (c *candidate) where(surveys []Survey) (map[string][]int, string) {
	where := map[string][]int{}
	for _, f := range c.Files {
		for rank, s := range surveys {
			if slices.Contains(s.Files, Held{c.Steps, f.Name, f.Bytes}) {
				where[f.Name] = append(where[f.Name], rank)
			}
		}
		if len(where[f.Name]) > 0 {
			continue
		}
		by := ""
		if f.Host != "" {
			by = ", which host " + f.Host + " has written"
		}
		return nil, fmt.Sprintf("%s lacks %s%s", NameOf(c.Steps), f.Name, by)
	}
	return where, ""
}

// check holds every file against its checksum on a host that has it, and leaves those that have it whole in where.
func (c *candidate) check(others Others, where map[string][]int) (string, error) {
	left := slices.Clone(c.Files)
	why := map[string]string{}
	for len(left) > 0 {
		ask := map[int][]File{}
		for _, f := range left {
			if len(where[f.Name]) == 0 {
				return fmt.Sprintf("%s: %s: %s", NameOf(c.Steps), f.Name, why[f.Name]), nil
			}
			ask[where[f.Name][0]] = append(ask[where[f.Name][0]], f)
		}
		left = nil
		for _, rank := range slices.Sorted(maps.Keys(ask)) {
			wrong, err := others.Check(rank, c.Steps, ask[rank])
			if err != nil {
				return "", err
			}
			for _, f := range ask[rank] {
				if text, is := wrong[f.Name]; is {
					why[f.Name], where[f.Name] = text, where[f.Name][1:]
					left = append(left, f)
				}
			}
		}
	}
	return "", nil
}

// At is where the checkpoint is, or would be, at a path on this host, and its manifest.
func (s *Spread) At(path string) (string, *Manifest, error) {
	m, err := decodeManifest([]byte(s.Manifest))
	if err != nil {
		return "", nil, fmt.Errorf("checkpoint: manifest: %w", err)
	}
	dir, _ := folder(path)
	return filepath.Join(dir, NameOf(m.Steps)), m, nil
}

// Shelf opens the files of a spread checkpoint that are at a path on this host.
func (s *Spread) Shelf(path string) (*Shelf, error) {
	at, m, err := s.At(path)
	if err != nil {
		return nil, err
	}
	shelf := &Shelf{path: at, manifest: m, files: map[string]*local{}}
	for _, f := range m.Files {
		one, err := lying(filepath.Dir(at), m.Steps, f)
		if err == nil {
			shelf.files[f.Name] = one
		}
	}
	return shelf, nil
}

// Open opens a spread checkpoint: files that are on the shelf there, and the others where they are, by a connection
// to that process. Nothing is read of them but their headers, and each tensor that is wanted.
func (s *Spread) Open(shelf *Shelf, dial func(process int) (io.ReadWriteCloser, error)) (*Checkpoint, error) {
	m := shelf.manifest
	c := &Checkpoint{Path: shelf.path, Manifest: m, text: []byte(s.Manifest), where: map[string]int{}}
	there := map[int]*remote{}
	for _, f := range m.Files {
		var from source
		if here := shelf.files[f.Name]; here != nil {
			from = borrowed{here}
		} else {
			process, ok := s.Where[f.Name]
			if !ok {
				return nil, errors.Join(fmt.Errorf("checkpoint: no process has %s of step %d", f.Name, m.Steps), c.Close())
			}
			r := there[process]
			if r == nil {
				r = &remote{process: process, silence: silence, dial: func() (io.ReadWriteCloser, error) { return dial(process) }}
				there[process] = r
				c.remotes = append(c.remotes, r)
			}
			from = &elsewhere{of: r, want: f}
		}
		if err := c.add(from, f); err != nil {
			return nil, errors.Join(fmt.Errorf("checkpoint: %s: %w", filepath.Join(c.Path, f.Name), err), c.Close())
		}
	}
	return c, nil
}

// borrowed is a file of a Shelf, which closes it.
type borrowed struct{ *local }

func (borrowed) Close() error { return nil }
