package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Others gives access to the Shelf of every process, by rank. All Shelves are of the same path.
type Others interface {
	Look() ([]Survey, error)
	Text(rank int, of Copy) (string, error)
	// Check makes several processes compare files with their checksums at the same time. `files` is by rank. The answer
	// is by rank and name of the file.
	Check(steps int, files map[int][]File) (map[int]map[string]Verdict, error)
}

// Spread describes a checkpoint whose files are on several hosts. Every process gets it.
type Spread struct {
	Manifest string              `json:"manifest"` // the manifest's text
	Where    map[string]int      `json:"where"`    // for each file, a process that has an undamaged copy
	Tensors  map[string][]string `json:"tensors"`  // by file: the names of its tensors
	// Passed lists later checkpoints that are incomplete, and why. A crash or a missing host leaves such checkpoints.
	Passed []string `json:"passed,omitempty"`
	// Newer says that a draft of a later step may belong to a complete checkpoint. It is set if a path named this
	// checkpoint, or if later checkpoints were skipped.
	Newer bool `json:"newer,omitempty"`
}

// Among chooses the newest checkpoint of which the processes together have all files. It skips a checkpoint if some of
// its files are on no host; a crash can leave such a checkpoint. If a checkpoint has changed since it was written,
// Among does not skip it, and returns a DamagedError. It skips a changed checkpoint only if a complete one of the same
// step has replaced it.
func Among(path string, others Others) (*Spread, error) {
	surveys, err := others.Look()
	if err != nil {
		return nil, err
	}
	if err := ofOne(surveys); err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	var passed []string
	var damaged []*candidate
	for _, c := range candidates(surveys) {
		if c.wrong == "" {
			if err := c.read(others); err != nil {
				return nil, err
			}
			where, missing := c.where(surveys)
			if missing != "" {
				passed = append(passed, missing)
				continue
			}
			if c.wrong, err = c.check(others, where); err != nil {
				return nil, err
			}
		}
		if c.wrong != "" {
			damaged = append(damaged, c)
			continue
		}
		if len(damaged) > 0 && damaged[0].Steps > c.Steps { // otherwise c replaced it
			return nil, &DamagedError{errors.New("checkpoint: " + damaged[0].wrong),
				filepath.Join(surveys[c.at].Folder, NameOf(c.Steps))}
		}
		c.spread.Passed, c.spread.Newer = passed, len(passed) > 0 || NamesOne(path)
		return &c.spread, nil
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

// ofOne returns an error unless there is one training of which all processes have checkpoints. Processes without any
// checkpoint do not count. Without this error, the newest checkpoint might belong to the wrong training, and the
// checkpoints of the right one would be set aside.
func ofOne(surveys []Survey) error {
	first, common := -1, map[string]bool{}
	for rank, s := range surveys {
		if len(s.Copies) == 0 {
			continue
		}
		also := map[string]bool{}
		for _, c := range s.Copies {
			if first < 0 || common[c.Training] {
				also[c.Training] = true
			}
		}
		if len(also) == 0 {
			return fmt.Errorf("rank %d on host %s has checkpoints of another training there than rank %d on host %s: name "+
				"the checkpoint that is meant, or move those of the other out of the way", rank, s.Host, first,
				surveys[first].Host)
		}
		if common = also; first < 0 {
			first = rank
		}
	}
	return nil
}

// candidate is a checkpoint that may be chosen.
type candidate struct {
	Copy
	at     int    // the first process that has the copy
	wrong  string // why the checkpoint cannot be read
	files  []File
	spread Spread
}

// candidates lists the checkpoints of all processes, newest first. A checkpoint with an unreadable manifest is listed
// only if no process has a readable one of that step.
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

// on adds the host to a text.
func (s *Survey) on(text string) string {
	if s.Host == "" {
		return text
	}
	return "on host " + s.Host + ": " + text
}

// read reads the manifest from the first process that has it.
func (c *candidate) read(others Others) error {
	text, err := others.Text(c.at, c.Copy)
	if err != nil {
		return err
	}
	m, err := decodeManifest([]byte(text))
	if err != nil {
		return fmt.Errorf("checkpoint: manifest: %w", err)
	}
	c.files, c.spread.Manifest = m.Files, text
	return nil
}

// where returns the processes that have each file, or says which file is missing.
func (c *candidate) where(surveys []Survey) (map[string][]int, string) {
	held := map[Held][]int{}
	for rank := range surveys {
		for _, h := range surveys[rank].Files {
			if at := held[h]; h.Steps == c.Steps && (len(at) == 0 || at[len(at)-1] != rank) { // a draft may have h too
				held[h] = append(at, rank)
			}
		}
	}
	where := map[string][]int{}
	for _, f := range c.files {
		if where[f.Name] = held[Held{c.Steps, f.Name, f.Bytes}]; len(where[f.Name]) > 0 {
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

// check makes processes compare the checkpoint's files with their checksums. If several processes have a file, one of
// them checks it, so that the files are read in parallel. If its copy is damaged, another process checks the file.
// check records where each undamaged file is, and its tensors.
func (c *candidate) check(others Others, where map[string][]int) (wrong string, err error) {
	c.spread.Where, c.spread.Tensors = map[string]int{}, map[string][]string{}
	left := c.files
	why := map[string]string{}
	for len(left) > 0 {
		ask, of := map[int][]File{}, map[string]int{}
		for i, f := range left {
			there := where[f.Name]
			if len(there) == 0 {
				return fmt.Sprintf("%s: %s: %s", NameOf(c.Steps), f.Name, why[f.Name]), nil
			}
			rank := there[i%len(there)]
			ask[rank], of[f.Name] = append(ask[rank], f), rank
		}
		verdicts, err := others.Check(c.Steps, ask)
		if err != nil {
			return "", err
		}
		var again []File
		for _, f := range left {
			rank := of[f.Name]
			v, said := verdicts[rank][f.Name]
			switch {
			case !said:
				return "", fmt.Errorf("checkpoint: process %d says nothing of %s of step %d", rank, f.Name, c.Steps)
			case v.Wrong == "":
				c.spread.Where[f.Name], c.spread.Tensors[f.Name] = rank, v.Tensors
			default:
				why[f.Name] = v.Wrong
				where[f.Name] = slices.DeleteFunc(slices.Clone(where[f.Name]), func(r int) bool { return r == rank })
				again = append(again, f)
			}
		}
		left = again
	}
	return "", nil
}
