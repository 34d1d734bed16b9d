// Package checkpoint writes and reads what a training run leaves on disk.
//
// In: the tensors that each stage holds, and a Manifest that says what they belong to.
// Out: a directory with one safetensors file a stage and manifest.json, which appears
// under its final name whole or not at all; and, on reading, single tensors by name,
// whatever stage wrote them.
// Refused: files cut short, headers that overlap, leave holes or repeat a name, sizes that do not fit their
// shapes, manifests of another version, files that changed since they were written, the manifest included.
// Nothing that a file says is trusted before it is checked. A manifest of version 1 is read, and has no
// checksum: of what stands in it alone, its keys are checked, its steps against the directory's name, its
// files against theirs, and that its samples suffice for its steps.
//
// Several processes may write one checkpoint, to one folder or each to its own: each writes the files of its stages
// into a draft and waits until they are on disk. The manifest comes last. It lists all files with their checksums,
// names the hosts that wrote them where there were several, and every folder gets a copy. A folder is one run's at
// a time: Store.Prune removes all drafts that it finds, but for those that SetOthersAside moves in front of it, which
// the leader's own folder is not asked to do: that is for whoever drives it. Of its checkpoints those are the run's
// that name its training.
//
// Drafts of several checkpoints may be written at once, where stages save themselves as they come to it: each becomes
// one by itself, and PruneBehind leaves those of more steps alone.
//
// Where files are on several hosts, each process has a Shelf of the path, and whoever leads has every one Look, and
// Among chooses the newest checkpoint that is whole over all of them: any of them may have the manifest, and each file
// may be in the checkpoint or in a draft of it. All that have files hold them against their checksums at once, each
// file once. Every process is told that Spread, serves the files that it has to the others over connections, and opens
// the checkpoint: what is not here, or damaged here, is read where it is, tensor by tensor, once it is needed.
// Surveys of processes that share a folder are as long as the folder's; those, the Where of a Spread and its Tensors,
// which every process is told, are what grows with processes times files.
//
// Of a directory of checkpoints the newest is opened, or none: one that is damaged is named, with the
// newest whole one before it, and not passed over. A run that is killed leaves no damaged one.
//
// Tensors are named "layer.parameter"; what an optimizer keeps for one is
// "layer.parameter#state". No name mentions a stage, so a run may go on under another plan. Of a layer that stages
// divide each has rows of the parameters, "layer.parameter[0:24]" and "layer.parameter[0:24]#state" (model.PartName),
// rows 0 to 23; whoever reads, exports or verifies has them as the one tensor that they are, and rows that are missing
// are refused.
package checkpoint
