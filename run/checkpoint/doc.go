// Package checkpoint writes and reads the files that a training run leaves on disk.
//
// Input: the tensors of each stage, and a Manifest that says what they belong to. Output: a directory with one
// safetensors file per stage and manifest.json. The directory appears under its final name completely or not at all.
// Reading returns single tensors by name, whichever stage wrote them. Package checkpoint refuses truncated files,
// headers whose tensors overlap, leave holes or repeat a name, sizes that do not fit their shapes, and manifests of an
// unknown version. It also refuses files, and manifests, that have changed since they were written. Nothing in a file
// is trusted before it is checked.
//
// A manifest of version 1 can be read, but it has no checksum. A change of such a manifest is noticed only if a value
// becomes impossible, a key is unknown or duplicate, there are fewer samples than the steps consume, the steps
// differ from the directory's name, or a file differs from its checksum.
//
// Several processes may write one checkpoint, to one folder or each to its own. Each writes the files of its stages
// into a draft and waits until they are on disk. The manifest is written last. It lists all files with their checksums,
// and the hosts that wrote them if there were several. Every folder gets a copy of the manifest.
//
// A folder belongs to one run at a time. Store.Prune removes all drafts that it finds, so SetOthersAside must first
// move the drafts that are to be kept. In the leader's own folder, the caller of the run must do this. The run owns the
// checkpoints in the folder that name its training.
//
// If stages save themselves, drafts of several checkpoints may be written at the same time. Each becomes a checkpoint
// separately, and PruneBehind does not touch drafts of checkpoints of later steps.
//
// If files are on several hosts, each process has a Shelf of the path. The leader calls Look on each Shelf, and Among
// chooses the newest checkpoint that all processes together have completely. Any process may have the manifest, and
// each file may be in the checkpoint or in a draft of it. The processes compare the files with their checksums in
// parallel. A file that several processes have is read by only one of them, unless its copy is damaged.
//
// Every process gets the resulting Spread, serves its files to the others over connections, and opens the checkpoint. A
// file that is missing or damaged here is read from another process, tensor by tensor, when it is needed. If processes
// share a folder, each of them surveys all of it. So the Surveys, and the Spread that every process gets, grow with the
// number of processes times the number of files.
//
// From a directory of checkpoints only the newest is opened. If it is damaged, it is not skipped: the error names it
// and the newest complete checkpoint before it. A killed run leaves no damaged checkpoint.
//
// Tensors are named "layer.parameter"; an optimizer's state of that parameter is named "layer.parameter#state". No name
// contains a stage, so a run may resume under another plan. If stages divide a layer, each has rows of its parameters:
// "layer.parameter[0:24]" and "layer.parameter[0:24]#state" (model.PartName) are rows 0 to 23. Reading, export and
// verification combine them to one tensor, and missing rows are an error.
package checkpoint
