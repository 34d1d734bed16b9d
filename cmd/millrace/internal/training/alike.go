package training

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/model/pretrained"
)

// claims holds what a process states about its inputs, by name. All processes of a run must state the same.
type claims map[string]any

// knownTo returns the claims whose names also occur in `others`.
func (c claims) knownTo(others claims) claims {
	both := maps.Clone(c)
	maps.DeleteFunc(both, func(name string, _ any) bool { return others[name] == nil })
	return both
}

// differ returns an error if two processes' claims differ.
func differ(own, theirs claims, a, b, remedy string) error {
	names := slices.Sorted(maps.Keys(own))
	for name := range theirs {
		if _, known := own[name]; !known {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if x, y := own[name], theirs[name]; !reflect.DeepEqual(x, y) {
			return cli.BadInput(fmt.Errorf("%s is %v for %s and %v for %s: %s", name, shown(x), a, shown(y), b, remedy))
		}
	}
	return nil
}

// shown formats a claim.
func shown(value any) any {
	if value == nil {
		return "left out"
	}
	return value
}

// travelled returns claims as they arrive after a transfer as JSON.
func travelled(c claims) (claims, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var out claims
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	return out.flat("", claims{}), nil
}

// flat makes nested settings separate claims, such as rate.base.
func (c claims) flat(within string, into claims) claims {
	for name, value := range c {
		if below, is := value.(map[string]any); is {
			claims(below).flat(within+name+".", into)
			continue
		}
		into[within+name] = value
	}
	return into
}

// filesOf returns digests of the files of a job's model, initial values, plan, Program and profile, as far as they can
// be read. Each host has its own copies of the files.
func filesOf(j *job.Job) claims {
	named := map[string]string{"--plan": j.Plan.File, "--program": j.Plan.Program, "--profile": j.Plan.Profile}
	c := claims{}
	switch {
	case model.IsFile(j.Model.Name):
		named["--model"] = j.Model.Name
	case imported.IsFile(j.Model.Name):
		for _, path := range imported.Files(j.Model.Name) {
			flag := "--model"
			if path != j.Model.Name {
				flag += ", " + filepath.Base(path) + " of"
			}
			named[flag] = path
		}
	}
	if j.Model.Init != "" {
		for _, path := range pretrained.Files(j.Model.Init) {
			named["--init, "+filepath.Base(path)+" of"] = path
		}
	}
	for flag, path := range named {
		h := sha256.New()
		if path != "" && hashFile(h, path) == nil {
			c["what is in "+flag+" "+path] = sum(h)
		}
	}
	return c
}

// These say how much of a data set is read to identify it.
const (
	wholeFile  = 64 << 20 // bytes read at the beginning of a file, and at its end if it is longer
	sampleRows = 16       // samples that are read of the training data, and as many of the test data
)

// dataOf returns claims that identify data: sizes, and a digest of samples and of the files.
func dataOf(j *job.Job, s *data.Set) (claims, error) {
	h := sha256.New()
	c := claims{"the number of classes of the data": s.Classes}
	for what, split := range map[string]data.Split{"training": s.Train, "test": s.Test} {
		if split != nil {
			c["the number of "+what+" samples of the data"] = split.Len()
		}
	}
	for _, split := range []data.Split{s.Train, s.Test} {
		if err := hashRows(h, split); err != nil {
			return nil, cli.BadInput(err)
		}
	}
	paths := []string{j.Data.Source}
	if entries, err := os.ReadDir(j.Data.Source); err == nil {
		paths = nil
		for _, e := range entries {
			paths = append(paths, filepath.Join(j.Data.Source, e.Name()))
		}
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() { // a file, not a built-in data set
			c["the size of "+path] = info.Size()
			if err := hashFile(h, path); err != nil {
				return nil, cli.BadInput(err)
			}
		}
	}
	c["the digest of the data"] = sum(h)
	return c, nil
}

// hashRows adds some evenly spaced samples of a part to the digest.
func hashRows(h hash.Hash, split data.Split) error {
	if split == nil || split.Len() == 0 {
		return nil
	}
	for i := range sampleRows {
		b, err := split.Batch(i*split.Len()/sampleRows, 1, 0, 1)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(b)) {
			a := b[name]
			if err := cmp.Or(binary.Write(h, binary.LittleEndian, a.Floats), binary.Write(h, binary.LittleEndian,
				a.Ints), binary.Write(h, binary.LittleEndian, a.Bools)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hashFile adds the beginning and the end of a file to the digest.
func hashFile(h hash.Hash, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyN(h, f, wholeFile); err != nil {
		if err == io.EOF {
			return nil
		}
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.Seek(max(wholeFile, info.Size()-wholeFile), io.SeekStart); err != nil {
		return err
	}
	_, err = io.CopyN(h, f, wholeFile)
	if err == io.EOF {
		return nil
	}
	return err
}

// sum returns the first 8 bytes of a digest in hex, enough to tell two digests apart.
func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:8]) }
