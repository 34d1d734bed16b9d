package words

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/internal/content"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/calibrate"
)

// named is a value that can be typed, with its description.
type named struct{ name, what string }

// offered returns the values that begin with the typed text.
func offered(values []named, typed string) []cobra.Completion {
	var out []cobra.Completion
	for _, v := range values {
		if strings.HasPrefix(v.name, typed) {
			out = append(out, cobra.CompletionWithDesc(v.name, v.what))
		}
	}
	return out
}

// One completes an argument that must be one of the given words.
func One(values ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var all []named
		for _, v := range values {
			all = append(all, named{name: v})
		}
		return offered(all, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// files completes files with these endings, and folders on the way.
func files(endings ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return endings, cobra.ShellCompDirectiveFilterFileExt
	}
}

// list completes the last of several values that are separated by commas.
func list(values func() []named) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return listed(values(), typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

func listed(values []named, typed string) []cobra.Completion {
	head, taken := "", map[string]bool{}
	if at := strings.LastIndexByte(typed, ','); at >= 0 {
		head, typed = typed[:at+1], typed[at+1:]
		for name := range strings.SplitSeq(head, ",") {
			taken[name] = true
		}
	}
	var out []cobra.Completion
	for _, v := range values {
		if strings.HasPrefix(v.name, typed) && !taken[v.name] {
			out = append(out, cobra.CompletionWithDesc(head+v.name, v.what))
		}
	}
	return out
}

// namesAndFiles completes names, paths of files with these endings, and folders.
func namesAndFiles(names func() []named, endings ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var all []cobra.Completion
		if names != nil {
			all = offered(names(), typed)
		}
		if atHome(typed) {
			for _, e := range endings {
				all = append(all, strings.TrimPrefix(e, "."))
			}
			return all, cobra.ShellCompDirectiveFilterFileExt
		}
		return withPaths(all, typed, func(path string, isDir bool) (string, bool) {
			return "", isDir || slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(path, e) })
		})
	}
}

// mostPaths is the maximal number of paths that are offered. In a larger folder, the user must type a few letters to
// see the other paths.
const mostPaths = 1000

// atHome reports whether a path begins with the user's home. The user may have typed a tilde instead, and only the
// shell knows this. A completion must begin with what was typed. So the shell must complete such a path.
func atHome(typed string) bool {
	if strings.HasPrefix(typed, "~/") { // the shell fish leaves the tilde in the typed text
		return true
	}
	home, err := os.UserHomeDir()
	return err == nil && filepath.IsAbs(home) && strings.HasPrefix(typed, home)
}

// withPaths adds the paths that begin with the typed text and that the function `take` accepts. `take` also returns the
// description of a path. A folder without a description gets a slash at its end. If only such folders are offered, the
// shell adds no space after them.
func withPaths(all []cobra.Completion, typed string, take func(path string, isDir bool) (string, bool)) (
	[]cobra.Completion, cobra.ShellCompDirective) {
	dir, begin := filepath.Split(typed)
	at := dir
	if at == "" {
		at = "."
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		entries = nil
	}
	onlyFolders, n := len(all) == 0, 0
	for _, e := range entries {
		hidden := strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(begin, ".")
		if hidden || !strings.HasPrefix(e.Name(), begin) {
			continue
		}
		path := dir + e.Name()
		info, err := os.Stat(path) // a link to a folder counts as a folder
		if err != nil {
			continue
		}
		what, ok := take(path, info.IsDir())
		if !ok {
			continue
		}
		if n++; n > mostPaths {
			break
		}
		if info.IsDir() && what == "" {
			path += string(filepath.Separator)
		} else {
			onlyFolders = false
		}
		all = append(all, cobra.CompletionWithDesc(path, what))
	}
	if onlyFolders && n > 0 {
		return all, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// Models completes a model: a built-in name, a .yaml file or a network of PyTorch.
var Models = namesAndFiles(modelNames, ".yaml", ".yml", ".mr", ".pt2")

func modelNames() []named {
	var all []named
	for _, f := range model.Families() {
		all = append(all, named{f.Name, f.Doc})
	}
	return all
}

// Clusters completes a preset or a cluster file.
var Clusters = namesAndFiles(clusterNames, ".yaml", ".yml", ".json")

func clusterNames() []named {
	var all []named
	for _, name := range cluster.Presets() {
		what := ""
		if c, err := cluster.Preset(name); err == nil {
			what = c.Summary()
		}
		all = append(all, named{name, what})
	}
	return all
}

// Calibrated completes a cluster, and then files of measurements.
func Calibrated(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return Clusters(c, args, typed)
	}
	return namesAndFiles(nil, ".csv", ".json")(c, args, typed)
}

// numberNames lists the numbers of a device that can be fitted.
func numberNames() []named {
	var all []named
	for _, name := range calibrate.Names() {
		all = append(all, named{name: name})
	}
	return all
}

// Kinds completes a kind of layer.
func Kinds(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []named
	for _, k := range model.Kinds() {
		all = append(all, named{k.Name, k.Doc})
	}
	return offered(all, typed), cobra.ShellCompDirectiveNoFileComp
}

// JobFiles completes a job file.
var JobFiles = files("yaml", "yml")

// Each completes each argument with its own function; further arguments are not completed.
func Each(values ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(values) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return values[len(args)](c, args, typed)
	}
}

// Data completes a data set's name, or a file or folder of one.
var Data = namesAndFiles(dataNames, ".csv", ".csv.gz", ".npz", ".safetensors", ".txt")

func dataNames() []named {
	var all []named
	for _, set := range data.Builtins() {
		all = append(all, named{set.Name, set.Doc})
	}
	return all
}

// Schedules completes a family of schedules.
func Schedules(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return offered(familyNames(), typed), cobra.ShellCompDirectiveNoFileComp
}

func familyNames() []named {
	var all []named
	for _, f := range family.All() {
		all = append(all, named{f.Name, f.Doc})
	}
	return all
}

// SchedulesAndFiles completes a family, or a file with a Program.
var SchedulesAndFiles = namesAndFiles(familyNames, ".txt", ".json", ".csv")

func policies(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []named
	for _, p := range schedule.Policies() {
		all = append(all, named{name: string(p)})
	}
	return offered(all, typed), cobra.ShellCompDirectiveNoFileComp
}

func planners(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all := []named{{"auto", "all of them, and a search"}}
	for _, p := range plan.Planners() {
		all = append(all, named{p.Name, p.Paper})
	}
	return offered(all, typed), cobra.ShellCompDirectiveNoFileComp
}

// asked returns the model that a command line names so far; nil if it names none, or the model cannot be made.
func asked(c *cobra.Command) *model.Model {
	j, err := prepare.Asked(c)
	if err != nil || j.Model.Name == "" {
		return nil
	}
	j.Model.Freeze, j.Model.Init = nil, "" // the user may have typed them only in part
	m, err := prepare.LoadModel(j)
	if err != nil {
		return nil
	}
	return m
}

// layers completes names of the model's layers, separated by commas.
func layers(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []named
	if m := asked(c); m != nil {
		for _, l := range m.Layers[1:] { // only the first stage begins at the first layer
			all = append(all, named{l.Name, l.Kind})
		}
	}
	return listed(all, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// patterns completes the values of --freeze: layers, their parameters, and parameters with the same name in all
// layers.
func patterns(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []named
	if m := asked(c); m != nil {
		ends := map[string]bool{}
		for i := range m.Layers {
			l := &m.Layers[i]
			if len(l.Params) > 0 {
				all = append(all, named{l.Name, l.Kind})
			}
			for k := range l.Params {
				full := l.ParamName(k)
				all = append(all, named{name: full})
				if dot := strings.LastIndexByte(full, '.'); dot >= 0 && !ends[full[dot:]] {
					ends[full[dot:]] = true
					all = append(all, named{"*" + full[dot:], "of every layer"})
				}
			}
		}
	}
	return listed(all, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// settings completes the names of settings, of a built-in model or a planner.
func settings(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []named
	if j, err := prepare.Asked(c); err == nil {
		for _, f := range model.Families() {
			if f.Name != j.Model.Name {
				continue
			}
			for _, s := range f.Settings {
				all = append(all, named{s.Name + "=", s.Doc})
				for _, v := range s.Words {
					all = append(all, named{name: s.Name + "=" + v})
				}
			}
		}
	}
	if f := c.Flags().Lookup("planner"); f != nil {
		if p, err := plan.LookupPlanner(f.Value.String()); err == nil {
			for _, s := range p.Settings {
				all = append(all, named{s.Name + "=", s.Doc})
			}
		}
	}
	return offered(all, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// Runs completes the folder of a run.
func Runs(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if atHome(typed) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return withPaths(nil, typed, func(path string, isDir bool) (string, bool) {
		if isDir && content.Of(path) == content.Run {
			return "a run", true
		}
		return "", isDir
	})
}

// Checkpoints completes the folder of a run, or one of its checkpoints.
func Checkpoints(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if atHome(typed) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	all, how := withPaths(nil, typed, func(path string, isDir bool) (string, bool) {
		if !isDir {
			return "", false
		}
		switch content.Of(path) {
		case content.Run:
			return "a run: its newest checkpoint", true
		case content.Checkpoint:
			return "a checkpoint", true
		}
		return "", true
	})
	run, inside := strings.CutSuffix(typed, string(filepath.Separator))
	if found := steps(run); len(found) > 0 {
		if inside {
			all = nil // offer only the run's checkpoints, not its folders
		}
		for _, path := range found {
			all = append(all, cobra.CompletionWithDesc(path, "a checkpoint"))
		}
		how = cobra.ShellCompDirectiveNoFileComp
	}
	return all, how
}

// steps returns the paths of a run's checkpoints, the newest first.
func steps(run string) []string {
	if run == "" || content.Of(run) != content.Run {
		return nil
	}
	at := filepath.Join(run, "checkpoints")
	entries, err := os.ReadDir(at)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range slices.Backward(entries) {
		if path := filepath.Join(at, e.Name()); content.Of(path) == content.Checkpoint {
			all = append(all, path)
		}
	}
	return all
}
