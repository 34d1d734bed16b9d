package runs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Ending is the suffix of files of hashes; git ignores it.
const Ending = ".hashes"

// hashes is the content of a file with the hashes of all runs on one machine.
type hashes struct {
	Commit      string            `json:"commit"` // commit of the tree; a "+" at its end says that files were changed
	Environment environment       `json:"environment"`
	List        string            `json:"list"` // digest of the list of runs
	Runs        map[string]hashOf `json:"runs"`
}

// hashOf holds the hashes of one run.
type hashOf struct {
	Weights string `json:"weights"`
	State   string `json:"state,omitempty"` // optimizer state
}

func (t tensors) hashes() hashOf {
	weights, state := t.split()
	return hashOf{weights.hash(), state.hash()}
}

// nameOfHashes refuses names that git does not ignore.
func nameOfHashes(path string) error {
	if !strings.HasSuffix(path, Ending) {
		return fmt.Errorf("-o %s: hashes are of this machine and stay here: give a name that ends in %s, which git ignores",
			path, Ending)
	}
	return nil
}

func (h *hashes) write(path string) error {
	text, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// readHashes reads a file of hashes. It refuses a file from another environment or list.
func readHashes(path string, here environment, list string) (*hashes, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--check: %w", err)
	}
	h := &hashes{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(h); err != nil {
		return nil, fmt.Errorf("--check %s: it is no file that -o wrote: %w", path, err)
	}
	if why := here.unlike(h.Environment); why != "" {
		return nil, fmt.Errorf("--check %s: it was written where other bits are right: %s; compare by --against", path, why)
	}
	if h.List != list {
		return nil, fmt.Errorf("--check %s: it is of another list of runs; write it again, or compare with %s by --against",
			path, h.Commit)
	}
	return h, nil
}
