// Package exchange reads and writes the files that Programs come in and go out as.
//
// In: a file in the text form, in JSON, or in PyTorch's form (torch.distributed.pipelining, compute_only).
// Out: a Source, which is the Program with the lines of its lists, so that what is wrong with it is said by
// line; or PyTorch's form.
//
// Refused: files over schedule.MaxFile, what is none of the three forms, what a form cannot say, all with the
// line. What is accepted still has to pass Source.Check.
//
// It imports schedule and schedule/check.
package exchange
