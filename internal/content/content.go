// Package content recognises files, for messages about a file of the wrong kind.
//
// Input: a path. Output: the kind of the file or folder there, judged by its content and not by its name, and a text
// that says how to use it with millrace. The package reads the beginning of a file, the member list of a zip archive,
// or the names in a folder. It returns no error: anything unrecognised or unreadable is Unknown. The caller adds to its
// message which kind it expected.
package content

import (
	"archive/zip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/ziparchive"
)

// Kind is a kind of file or folder.
type Kind int

// These are the recognised kinds.
const (
	Unknown     Kind = iota
	Network          // from python/millrace_export.py
	PT2              // from torch.export.save
	NPZ              // arrays from numpy.savez
	NPY              // an array from numpy.save
	Safetensors      // named tensors
	Pickle           // from torch.save or torch.jit.save
	Imported         // a folder from millrace import
	Run              // a folder that train has written
	Checkpoint       // a checkpoint of a run
)

var words = [...]string{
	Unknown:     "nothing that is known",
	Network:     "a network that python/millrace_export.py has written: give it as --model",
	PT2:         "a network of torch.export.save: give it as --model",
	NPZ:         "an archive of arrays of numpy.savez: give it as --data, under a name that ends with .npz",
	NPY:         "one array of numpy.save: write numpy.savez(\"data.npz\", NAME=array), and give it as --data",
	Safetensors: "a file of safetensors: arrays for --data, under a name that ends so, or weights for --init",
	Pickle: "a pickle of torch.save or torch.jit.save, which could run any code: export the module with " +
		"python3 python/millrace_export.py SPEC.py:build -o MODEL, and save weights as safetensors",
	Imported:   "a folder of millrace import: give it as --model",
	Run:        "what a run has left: millrace checkpoint and --resume take it",
	Checkpoint: "a checkpoint: millrace checkpoint and --resume take it",
}

// String describes the kind. It also names the flag or command of millrace that accepts such a file, or says how to
// convert it.
func (k Kind) String() string { return words[k] }

// mostMembers bounds how many bytes of an archive's member list are read.
const mostMembers = 32 << 20

// Of returns the kind of the file or folder at a path.
func Of(path string) Kind {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return folder(path)
	}
	f, err := document.Open(path)
	if err != nil {
		return Unknown
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Unknown
	}
	var head [9]byte
	n, _ := f.ReadAt(head[:], 0) // a file shorter than head leaves zeros at its end
	switch {
	case strings.HasPrefix(string(head[:]), "PK"):
		return archive(f, info.Size())
	case strings.HasPrefix(string(head[:]), "\x93NUMPY"):
		return NPY
	case n > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5: // a pickle of protocol 2 to 5 begins so
		return Pickle
	case head[8] == '{' && int64(binary.LittleEndian.Uint64(head[:8])) > 1 &&
		int64(binary.LittleEndian.Uint64(head[:8])) <= info.Size()-8:
		return Safetensors
	}
	return Unknown
}

// archive recognises zip archives by the names of their members.
func archive(f io.ReaderAt, size int64) Kind {
	members, err := ziparchive.Members(f, size, mostMembers)
	if err != nil || len(members) == 0 {
		return Unknown
	}
	arrays := true
	for _, m := range members {
		_, inner, _ := strings.Cut(m.Name, "/")
		switch {
		case m.Name == "graph.json":
			return Network
		case inner == "archive_format" || m.Name == "archive_format" || strings.HasPrefix(inner, "models/") ||
			strings.HasSuffix(m.Name, "serialized_exported_program.json"):
			return PT2
		case inner == "data.pkl":
			return Pickle
		}
		arrays = arrays && isArray(m)
	}
	if arrays {
		return NPZ
	}
	return Unknown
}

func isArray(m *zip.File) bool { return strings.HasSuffix(m.Name, ".npy") }

// folder recognises folders by the files in them.
func folder(path string) Kind {
	for _, of := range []struct {
		file string
		kind Kind
	}{{"import.json", Imported}, {"manifest.json", Checkpoint}, {"checkpoints", Run}, {"metrics.jsonl", Run}} {
		if _, err := os.Stat(filepath.Join(path, of.file)); err == nil {
			return of.kind
		}
	}
	return Unknown
}
