package cluster

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/registry"
)

// presetFiles has the preset clusters. In the files, a comment gives the source of every number.
//
//go:embed presets/*.yaml
var presetFiles embed.FS

// Presets lists the names of the clusters that come with millrace.
func Presets() []string {
	entries, err := fs.ReadDir(presetFiles, "presets")
	if err != nil {
		panic("cluster: embedded presets: " + err.Error())
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Origins lists the kinds of presets, in the order in which they are shown.
var Origins = []string{"the papers", "machines that one buys", "clouds"}

// Origin returns which of Origins a preset belongs to, by the first word of its name.
func Origin(preset string) string {
	first, _, _ := strings.Cut(preset, "-")
	switch first {
	case "avgpipe", "bapipe", "dapple", "pipedream":
		return Origins[0]
	case "aws", "azure", "gcp":
		return Origins[2]
	}
	return Origins[1]
}

// Preset returns the cluster of that name. A colon and a size may follow, with the outermost level first, as in the
// papers: "dapple-a:4x8" is four servers of eight devices.
func Preset(name string) (*Cluster, error) {
	base, shape, sized := strings.Cut(name, ":")
	text, err := presetFiles.ReadFile("presets/" + base + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", registry.None("file and no preset", base, Presets(),
			"the path of a cluster file"))
	}
	f, err := parse(text)
	if err != nil {
		panic("cluster: preset " + base + ": " + err.Error())
	}
	if sized {
		if err := f.resize(shape); err != nil {
			return nil, fmt.Errorf("cluster: preset %s: %w", base, err)
		}
		f.Name += ":" + shape
	}
	return f.cluster()
}

func (f *file) resize(shape string) error {
	words := strings.Split(shape, "x")
	if len(words) != len(f.Levels) {
		return fmt.Errorf("size %q; it has %d levels: give a size for each, like %s", shape, len(f.Levels), f.shape())
	}
	if len(f.Nodes) > 0 {
		return fmt.Errorf("its nodes differ, so that it has one size, %s; write a file for another", f.shape())
	}
	slices.Reverse(words)
	before, after, said := 1, 1, f.PerHost
	for i, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil || n < 1 || n > MaxDevices {
			return fmt.Errorf("size %q: %q is no number of members of level %s", shape, w, f.Levels[i].Name)
		}
		if l := &f.Levels[i]; l.Rails > 0 { // keep the number of devices on each rail
			if l.Rails*after%before != 0 {
				return fmt.Errorf("size %q: level %s has %d rails for %d devices, and %d devices cannot share rails likewise; "+
					"write a file", shape, l.Name, l.Rails, before, after)
			}
			l.Rails = l.Rails * after / before
		}
		before, after = before*f.Levels[i].Size, after*n
		if len(said) == 1 && said[0] > 1 && said[0] == before { // a group of this level is a host
			f.PerHost = []int{after}
		}
		f.Levels[i].Size = n
	}
	return nil
}

func (f *file) shape() string {
	var words []string
	for _, l := range f.Levels {
		words = append(words, strconv.Itoa(l.Size))
	}
	slices.Reverse(words)
	return strings.Join(words, "x")
}

// looksLikePreset reports whether a missing file's name may be a misspelled preset. A path has a slash or an extension.
func looksLikePreset(path string) bool { return path != "" && !strings.ContainsAny(path, "/\\.") }
