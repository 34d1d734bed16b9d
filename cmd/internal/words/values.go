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

// named is a value that can be typed, and what it is.
type named struct{ name, what string }

// offered is those of values that begin as what is typed does.
func offered(values []named, typed string) []cobra.Completion {
	var out []cobra.Completion
	for _, v := range values {
		if strings.HasPrefix(v.name, typed) {
			out = append(out, cobra.CompletionWithDesc(v.name, v.what))
		}
	}
	return out
}

// One is one of a few words.
func One(values ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var all []named
		for _, v := range values {
			all = append(all, named{name: v})
		}
		return offered(all, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// files is files whose names end so, and folders on the way to them.
func files(endings ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return endings, cobra.ShellCompDirectiveFilterFileExt
	}
}

// list is several values with commas between them: the last one is completed.
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

// namesAndFiles is names, and paths of files with these endings, and of folders.
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

// mostPaths bounds how many paths are offered: of a folder with more a few letters must be typed.
const mostPaths = 1000

// atHome says whether a path is in the user's home: it may be typed with a tilde, which the shell alone knows, and
// which what is offered has to begin with.
func atHome(typed string) bool {
	if strings.HasPrefix(typed, "~/") { // as fish hands it on
		return true
	}
	home, err := os.UserHomeDir()
	return err == nil && filepath.IsAbs(home) && strings.HasPrefix(typed, home)
}

// withPaths adds paths that begin as typed does and that take says to offer, with what it says of them. Folders end in
// a slash, and where there is nothing else the shell puts no space behind them.
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
		info, err := os.Stat(path) // also of what a link points to
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

// Calibrated completes a cluster, and measurements of it behind that.
func Calibrated(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return Clusters(c, args, typed)
	}
	return namesAndFiles(nil, ".csv", ".json")(c, args, typed)
}

// numberNames are what can be fitted of a device.
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

// Each completes arguments, each by its own; there are no more.
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

// asked is the model that a command line has named so far; nil: none, or one that cannot be made.
func asked(c *cobra.Command) *model.Model {
	j, err := prepare.Asked(c)
	if err != nil || j.Model.Name == "" {
		return nil
	}
	j.Model.Freeze, j.Model.Init = nil, "" // which may be what is being typed
	m, err := prepare.LoadModel(j)
	if err != nil {
		return nil
	}
	return m
}

// layers completes names of the model's layers, with commas.
func layers(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []named
	if m := asked(c); m != nil {
		for _, l := range m.Layers[1:] { // no stage but the first begins at the first one
			all = append(all, named{l.Name, l.Kind})
		}
	}
	return listed(all, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// patterns completes what --freeze takes: layers, their parameters, and all of one name.
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

// settings completes the names of a built-in model's settings, and a planner's.
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
			all = nil // nobody asks for the folders of a run
		}
		for _, path := range found {
			all = append(all, cobra.CompletionWithDesc(path, "a checkpoint"))
		}
		how = cobra.ShellCompDirectiveNoFileComp
	}
	return all, how
}

// steps are the checkpoints of a run's folder, by path, the newest first.
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
