package training

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// RecordName is the file in which a run's folder lists the run's own files. Other files, such as a TensorBoard
// folder, are never deleted.
const RecordName = "files.json"

const recordVersion = 1

// record is the content of files.json.
type record struct {
	Version int      `json:"version"`
	Run     string   `json:"run,omitempty"` // the last run in the folder, as its launcher named it
	Files   []string `json:"files"`
}

// written lists the files that every run writes to its folder, besides checkpoints and event files.
var written = append(slices.Clone(folder.Files), folder.MetricsName, folder.EventsName)

// ReadRecord returns the files that a folder's record lists as the run's own; nil if there is no record. It ignores
// a file of that name that millrace did not write.
func ReadRecord(dir string) []string { return readRecord(dir).Files }

func readRecord(dir string) record {
	var r record
	text, err := os.ReadFile(filepath.Join(dir, RecordName))
	if err != nil || document.Decode(text, recordVersion, &r) != nil {
		return record{}
	}
	r.Files = slices.DeleteFunc(r.Files, func(name string) bool {
		return name != filepath.Base(name) || !filepath.IsLocal(name)
	})
	return r
}

// note adds files to the record of the run's own files.
func note(dir string, names ...string) error {
	r := readRecord(dir)
	names = slices.Concat(names, r.Files)
	slices.Sort(names)
	r.Version, r.Files = recordVersion, slices.Compact(names)
	return document.WriteJSON(filepath.Join(dir, RecordName), r)
}

// noteRun records which run the folder belongs to.
func noteRun(dir, run string) error {
	r := readRecord(dir)
	if r.Version, r.Run = recordVersion, run; r.Files == nil {
		r.Files = []string{} // an empty list marks a record; nil marks a missing one
	}
	return document.WriteJSON(filepath.Join(dir, RecordName), r)
}

// claim makes this folder the run's own; processes except rank 0 call it. It locks the folder until the process ends,
// unless another process of the run has done so. Another run may have used the folder since it was checked, so claim
// checks it again. Then it calls `arrange`, which sets old files aside, and records the run. If another program's file
// has the record's name, claim keeps it and writes no record.
func (t *training) claim(j *job.Job, run string, arrange func() error) (err error) {
	if t.folder == nil && !t.fellow {
		if t.folder, err = TakeFolder(j.Output.Folder); err != nil {
			return err
		}
	}
	from, err := t.goesOnHere(j)
	if err == nil {
		err = checkOut(j, run, from)
	}
	if err == nil {
		err = arrange()
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(j.Output.Folder, RecordName)); err == nil && ReadRecord(j.Output.Folder) == nil {
		return nil
	}
	return noteRun(j.Output.Folder, run)
}

// makeRoom sets aside what this run would overwrite. If this run resumes from a checkpoint of its own folder, makeRoom
// sets aside only what belongs to later steps, and a file of another program with the record's name. The parts of
// earlier steps stay.
func (w *runDir) makeRoom() error {
	if w.from != nil && w.from.here {
		if err := w.setForeignRecordAside(); err != nil {
			return err
		}
		aside, err := w.setLaterAside()
		if err != nil {
			return err
		}
		return folder.Keep(w.Job.Output.Folder, w.from.steps(), aside)
	}
	names, err := w.present(append(ReadRecord(w.Job.Output.Folder), written...))
	if err != nil || len(names) == 0 {
		return err
	}
	aside, err := w.newAside()
	if err != nil {
		return err
	}
	ours := ReadRecord(w.Job.Output.Folder)
	w.replaced = aside
	for _, name := range names {
		if err := os.Rename(w.path(name), filepath.Join(aside, name)); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	strangers := slices.DeleteFunc(names, func(name string) bool {
		return name == "checkpoints" || name == folder.PartsName || name == RecordName && ours != nil ||
			slices.Contains(ours, name)
	})
	if len(strangers) > 0 {
		w.progress.say(fmt.Sprintf("%s of %s is not known to be of an earlier run: it is kept in %s",
			strings.Join(strangers, ", "), w.Job.Output.Folder, aside))
	}
	if ours != nil && !w.replaces(aside) {
		w.progress.say(fmt.Sprintf("%s has an earlier run without a checkpoint: it is kept in %s", w.Job.Output.Folder,
			aside))
	}
	return nil
}

// replaces reports whether the run that was set aside in a folder is to be deleted: the user asks for it, this run
// resumes that run from its beginning, or a launcher has started that run again.
func (w *runDir) replaces(aside string) bool {
	return w.Job.Output.Overwrite || w.from != nil || w.run != "" && readRecord(aside).Run == w.run
}

// setForeignRecordAside moves a file that has the record's name but is not a record, because a resumed run writes
// its own record there.
func (w *runDir) setForeignRecordAside() error {
	_, err := os.Lstat(w.path(RecordName))
	if errors.Is(err, fs.ErrNotExist) || ReadRecord(w.Job.Output.Folder) != nil {
		return nil
	}
	aside, err := w.newAside()
	if err != nil {
		return err
	}
	if err := os.Rename(w.path(RecordName), filepath.Join(aside, RecordName)); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	w.progress.say(fmt.Sprintf("%s of %s is not known to be of an earlier run: it is kept in %s",
		RecordName, w.Job.Output.Folder, aside))
	return nil
}

// present returns which of these names are in the run's folder, and adds the checkpoints, the parts and the record. The
// folder of checkpoints comes first: one rename moves it whole. The record comes last, because it lists the run's
// files, and another attempt to move them needs the list.
func (w *runDir) present(names []string) ([]string, error) {
	slices.Sort(names)
	var there []string
	if old, err := os.ReadDir(w.path("checkpoints")); err == nil && len(old) > 0 {
		there = append(there, "checkpoints")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--out: %w", err)
	}
	if ReadRecord(w.Job.Output.Folder) != nil { // otherwise a folder of that name belongs to another program
		names = append(names, folder.PartsName)
	}
	for _, name := range append(slices.Compact(names), RecordName) {
		if _, err := os.Lstat(w.path(name)); err == nil {
			there = append(there, name)
		}
	}
	return there, nil
}

// setLaterAside moves the checkpoints after the resumed one to a new folder, with a copy of the metrics. It returns the
// folder's path; "" if there are no such checkpoints. They belong to a training that is given up, and --resume could
// find them. If there are none, but the metrics file has lines that no run has written, only the metrics are copied.
// makeRoom then moves the report to the folder too, because it may show later steps.
func (w *runDir) setLaterAside() (aside string, err error) {
	dir := checkpoints(w.Job)
	later, err := checkpoint.Later(dir, w.from.steps())
	if err == nil && w.from.newer {
		var drafts []string
		drafts, err = checkpoint.Unfinished(dir, w.from.steps())
		later = append(later, drafts...)
	}
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(w.path(folder.MetricsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("metrics: %w", err)
	}
	if len(later) == 0 && !holdsOthers(text) {
		return "", nil
	}
	if aside, err = w.newAside(); err != nil {
		return "", err
	}
	if len(text) > 0 {
		if err := document.WriteText(filepath.Join(aside, folder.MetricsName), string(text)); err != nil {
			return "", err
		}
	}
	if len(later) == 0 {
		w.progress.say(fmt.Sprintf("%s has lines that are no metrics of a step: a copy is in %s",
			w.path(folder.MetricsName), aside))
		return "", nil
	}
	if err := checkpoint.SetAside(dir, filepath.Join(aside, "checkpoints"), later); err != nil {
		return "", err
	}
	w.progress.say(fmt.Sprintf("set aside in %s, with the metrics and the report up to them: %s, "+
		"which are behind the checkpoint that this run goes on from",
		filepath.Join(aside, "checkpoints"), strings.Join(later, ", ")))
	return aside, nil
}

// holdsOthers reports whether a metrics file has lines that no run has written. It ignores an incomplete last line.
func holdsOthers(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		if _, is := ofStep([]byte(line)); !is && strings.HasSuffix(line, "\n") {
			return true
		}
	}
	return false
}

// newAside makes a new folder for files that are set aside.
func (w *runDir) newAside() (string, error) {
	for n := 1; ; n++ {
		dir := w.path(fmt.Sprintf("aside-%d", n))
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			err = fmt.Errorf("--out: %w", err)
		}
		return dir, err
	}
}

// dropReplaced deletes the set-aside files of a run that this run replaces: its checkpoints and its own files. It is
// called once this run has a checkpoint.
func (w *runDir) dropReplaced() error {
	dir := w.replaced
	if w.replaced = ""; dir == "" || !w.replaces(dir) {
		return nil
	}
	names := ReadRecord(dir)
	err := checkpoint.Remove(filepath.Join(dir, "checkpoints"))
	if names != nil {
		err = errors.Join(err, folder.Remove(dir))
		names = append(names, RecordName)
	}
	for _, name := range names {
		if gone := os.Remove(filepath.Join(dir, name)); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	if left, unread := os.ReadDir(dir); unread == nil && len(left) == 0 {
		err = errors.Join(err, os.Remove(dir))
	}
	return err
}

// createEvents makes the run's event file under an unused name, and records it.
func (w *runDir) createEvents(now time.Time, host string) (*os.File, error) {
	for ; ; now = now.Add(time.Second) {
		name := metrics.TensorBoardName(now, host)
		if _, err := os.Lstat(w.path(name)); err == nil {
			continue
		}
		if err := note(w.Job.Output.Folder, name); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(w.path(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		return f, err
	}
}
