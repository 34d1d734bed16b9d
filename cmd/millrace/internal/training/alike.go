package training

import (
	"crypto/sha256"
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

// travelled returns claims as another process receives them in JSON.
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

// flat adds the claims to `into`. Nested settings become separate claims, such as rate.base.
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

// wholeFile is how many bytes of a file are hashed at its beginning, and at most how many more at its end.
const wholeFile = 64 << 20

// dataOf returns claims that identify data: sizes, and a digest of samples and of the files. `train` is the Mark of the
// training data.
func dataOf(j *job.Job, s *data.Set, train data.Mark) (claims, error) {
	h := sha256.New()
	c := claims{"the number of classes of the data": s.Classes}
	for i, split := range []data.Split{s.Train, s.Test} {
		if split == nil {
			continue
		}
		mark := train
		if i > 0 {
			var err error
			if mark, err = data.MarkOf(split); err != nil {
				return nil, cli.BadInput(err)
			}
		}
		c["the number of "+[]string{"training", "test"}[i]+" samples of the data"] = mark.Rows
		fmt.Fprintln(h, mark.SHA256)
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
