// Package checkpoint writes and reads the files that a training run leaves on disk.
//
// Input: the tensors of each stage, and a Manifest that says what they belong to. Output: a directory with one
// safetensors file per stage and manifest.json. It appears under its final name completely or not at all. Reading
// returns single tensors by name, whichever stage wrote them. Package checkpoint refuses truncated files, headers that
// overlap, leave holes or repeat a name, sizes that do not fit their shapes, and manifests of another version. It also
// refuses files, and manifests, that have changed since they were written. Nothing in a file is trusted before it is
// checked.
//
// A manifest of version 1 can be read, but it has no checksum. So only impossible values are refused, changes of its
// keys, of its steps (against the directory's name) and of its files (against their checksums), and too few samples.
//
// Several processes may write one checkpoint, to one folder or each to its own. Each writes the files of its stages
// into a draft and waits until they are on disk. The manifest comes last. It lists all files with their checksums, and
// the hosts that wrote them if there were several. Every folder gets a copy.
//
// A folder belongs to one run at a time. Store.Prune removes all drafts that it finds, so SetOthersAside must move
// those to be kept before. In the leader's own folder this is left to the caller of the run. The run owns the
// checkpoints in the folder that name its training.
//
// If stages save themselves, drafts of several checkpoints may be written at the same time. Each becomes a checkpoint
// separately, and PruneBehind does not touch drafts of more steps.
//
// If files are on several hosts, each process has a Shelf of the path. The leader calls Look on each, and Among chooses
// the newest checkpoint that all processes together have completely. Any process may have the manifest, and each file
// may be in the checkpoint or in a draft of it. The processes compare their files with the checksums in parallel, each
// file once.
//
// Every process gets the resulting Spread, serves its files to the others over connections, and opens the checkpoint. A
// file that is missing or damaged here is read from another process, tensor by tensor, when it is needed. If processes
// share a folder, each of them surveys all of it. So the Surveys, and the Spread that every process gets, grow with the
// number of processes times the number of files.
//
// From a directory of checkpoints only the newest is opened. If it is damaged, the error names it and the newest
// complete one before it; it is not skipped. A killed run leaves no damaged checkpoint.
//
// Tensors are named "layer.parameter"; an optimizer's state of that parameter is named "layer.parameter#state". No name
// contains a stage, so a run may resume under another plan. If stages divide a layer, each has rows of its parameters:
// "layer.parameter[0:24]" and "layer.parameter[0:24]#state" (model.PartName) are rows 0 to 23. Reading, export and
// verification combine them to one tensor, and missing rows are an error.
package checkpoint
