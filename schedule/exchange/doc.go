// Package exchange reads and writes the files of Programs.
//
// In: a file in the text form, in JSON, or in PyTorch's form (torch.distributed.pipelining, compute_only). Out: a
// Source, or PyTorch's form. A Source is the Program with the line numbers of its lists, so that an error can name the
// line.
//
// Refused: files over schedule.MaxFile, files in none of the three forms, and what a form cannot express, with the
// line. An accepted Program still has to pass Source.Check.
//
// It imports schedule and schedule/check.
package exchange
