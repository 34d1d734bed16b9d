package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/millrace-ml/millrace/data/arrays"
	"github.com/millrace-ml/millrace/internal/content"
	"github.com/millrace-ml/millrace/internal/registry"
)

// fashionMNIST is the folder that Debian's package dataset-fashion-mnist installs.
const fashionMNIST = "/usr/share/datasets/fashion-mnist"

// Builtin is a data set with a name. It is part of millrace or installed on the system.
type Builtin struct{ Name, Doc string }

// Builtins lists the built-in data sets.
func Builtins() []Builtin {
	return []Builtin{
		{"digits", "1,797 handwritten digits of 8 x 8 pixels, shipped"},
		{"fashion-mnist", "70,000 pictures of clothes, 28 x 28 pixels, from Debian's dataset-fashion-mnist"},
	}
}

// Place returns the path of a built-in data set and its size in bytes. path is empty if the data set is a part of
// millrace. If the data set is missing, Place returns an error that says what installs it.
func (b Builtin) Place() (path string, bytes int64, err error) {
	if b.Name == "digits" {
		return "", int64(len(digits)), nil
	}
	files, err := os.ReadDir(fashionMNIST)
	for _, f := range files {
		if info, err := f.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
	}
	if err != nil || bytes == 0 {
		return fashionMNIST, 0, errors.New("not installed; on Debian: apt-get install dataset-fashion-mnist")
	}
	return fashionMNIST, bytes, nil
}

// Format is a kind of files that can be trained on.
type Format struct {
	Spec string `json:"data"`     // the value of --data
	Doc  string `json:"doc"`      // what the files contain
	Test string `json:"held_out"` // which rows are only for evaluation
}

// Formats lists the kinds of files that Open reads.
func Formats() []Format {
	return []Format{
		{"a folder", "four IDX files, named as MNIST's are, .gz or not", "the rows of the t10k files"},
		{"FILE.csv, FILE.csv.gz", "rows of numbers, the class or its name last", "every fifth row"},
		{"FILE.npz, FILE.safetensors", "an array for each input of the model, with a row for each sample",
			"a tenth of the rows, drawn at random, the same in every run (--train-part)"},
		{"any other file", "a text of bytes, or of tokens with --tokenizer", "its last tenth"},
	}
}

// Open opens a data set. spec is "digits" (shipped), "fashion-mnist" (Debian's package), or a path. A folder has
// MNIST-style IDX files. A .csv or .csv.gz file has the class in its last column. An .npz or .safetensors file has
// arrays. Any other file is read as a text of bytes or tokens.
func Open(spec string, o Options) (*Set, error) {
	set, err := open(spec, o)
	if err == nil && o.Tokenizer != "" && !set.Tokens {
		return nil, fmt.Errorf("data: a tokenizer makes tokens of a text, and %s is none; leave it out", spec)
	}
	return set, err
}

// others lists what may be given instead of a data set's name.
const others = "a folder of IDX files, a .csv, .npz or .safetensors file, or a text"

func open(spec string, o Options) (*Set, error) {
	is := content.Of(spec)
	if arrays.Is(spec) {
		if is != content.Unknown && is != arrays.Holds(spec) {
			return nil, fmt.Errorf("data: %s is %v", spec, is)
		}
		return openArrays(spec, o)
	}
	if o.TrainPart != 0 {
		return nil, fmt.Errorf("data: train_part divides the rows of .npz and .safetensors files; %s has test rows of its "+
			"own", spec)
	}
	switch spec {
	case "digits":
		return openDigits(o)
	case "fashion-mnist":
		set, err := openIDX(spec, fashionMNIST, o)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("data: fashion-mnist is not installed (%s is missing); on Debian: apt-get install "+
				"dataset-fashion-mnist", fashionMNIST)
		}
		return set, err
	case "":
		return nil, fmt.Errorf("data: no data set is named; give digits, fashion-mnist or " + others)
	}
	info, err := os.Stat(spec)
	if errors.Is(err, fs.ErrNotExist) {
		var names []string
		for _, b := range Builtins() {
			names = append(names, b.Name)
		}
		return nil, fmt.Errorf("data: %w", registry.None("file and no data set", spec, names, others))
	}
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	if info.IsDir() { // it may be a data set although its file names suggest another kind of content
		set, err := openIDX(spec, spec, o)
		if err == nil || is == content.Unknown || !errors.Is(err, fs.ErrNotExist) {
			return set, err
		}
	}
	if is != content.Unknown {
		return nil, fmt.Errorf("data: %s is %v", spec, is)
	}
	if strings.HasSuffix(spec, ".csv") || strings.HasSuffix(spec, ".csv.gz") {
		r, _, err := openMaybeGzip(spec)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		defer r.Close()
		return readCSV(spec, r, o, normaliseColumns)
	}
	return openText(spec, o)
}
