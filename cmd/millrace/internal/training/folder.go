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

// RecordName is the file in which a run's folder lists the files that are its own. Others, a TensorBoard
// folder's for instance, are nobody's to delete.
const RecordName = "files.json"

const recordVersion = 1

// record is the content of that file.
type record struct {
	Version int      `json:"version"`
	Run     string   `json:"run,omitempty"` // that was there last, as its launcher names it
	Files   []string `json:"files"`
}

// written is the names of the files that every run writes to its folder, beside its checkpoints and event files.
var written = append(slices.Clone(folder.Files), folder.MetricsName, folder.EventsName)

// ReadRecord is the files that a folder says are its run's own; none where it has no record. A file of that name which
// is no record is somebody else's.
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

// note adds files to those that the folder says are its run's own.
func note(dir string, names ...string) error {
	r := readRecord(dir)
	names = slices.Concat(names, r.Files)
	slices.Sort(names)
	r.Version, r.Files = recordVersion, slices.Compact(names)
	return document.WriteJSON(filepath.Join(dir, RecordName), r)
}

// noteRun says whose the folder is.
func noteRun(dir, run string) error {
	r := readRecord(dir)
	if r.Version, r.Run = recordVersion, run; r.Files == nil {
		r.Files = []string{} // which is a record, where nothing is none
	}
	return document.WriteJSON(filepath.Join(dir, RecordName), r)
}

// claim makes a folder that rank 0 does not have the run's own, and holds it until the process ends. arrange comes
// first and sets aside what is there. Another run may have been there since the folder was looked at. A file of the
// record's name that is none stays: such a folder does not say whose it is.
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

// makeRoom sets aside what is in the run's folder and is not of this training, else whatever it would write over. Where
// the run goes on from a checkpoint of the folder that is the later ones, and the files of earlier parts are kept.
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
	return nil
}

// setForeignRecordAside moves a file that has the record's name and is none: a run that goes on writes its own there.
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

// present is those of these names that are in the run's folder, its checkpoints first and the record last: wherever
// the moving of them is cut short, the checkpoints are together.
func (w *runDir) present(names []string) ([]string, error) {
	slices.Sort(names)
	var there []string
	if old, err := os.ReadDir(w.path("checkpoints")); err == nil && len(old) > 0 {
		there = append(there, "checkpoints")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--out: %w", err)
	}
	if ReadRecord(w.Job.Output.Folder) != nil { // else a folder of that name is somebody's
		names = append(names, folder.PartsName)
	}
	for _, name := range append(slices.Compact(names), RecordName) {
		if _, err := os.Lstat(w.path(name)); err == nil {
			there = append(there, name)
		}
	}
	return there, nil
}

// setLaterAside moves the checkpoints behind the one that the run goes on from, and returns where to; empty: there are
// none. They are of a training that is given up, and so are the report, which is to go with them, and the metrics, of
// which a copy does: --resume with the folder must not find them, nor may this run's report show their steps.
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

// holdsOthers says whether a file of metrics has lines that no run has written, but for a last one cut short.
func holdsOthers(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		if _, is := ofStep([]byte(line)); !is && strings.HasSuffix(line, "\n") {
			return true
		}
	}
	return false
}

// newAside makes the next folder for checkpoints that are set aside.
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

// dropReplaced deletes what was set aside of the earlier run that this one replaces: its checkpoints and the
// files that it had noted as its own. It comes once this run has a checkpoint.
func (w *runDir) dropReplaced() error {
	dir := w.replaced
	if dir == "" {
		return nil
	}
	w.replaced = ""
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

// createEvents makes the run's event file, under a name that nobody has, and notes it.
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
