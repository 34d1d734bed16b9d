// Command attack runs millrace on what breaks programs, and says what broke.
//
// In: the programs bin/millrace and bin/millrace-lab with the native library, and the table of bad inputs in
// testdata/inputs. Out: a line for each kind of attack with what was tried, and each finding with
// the command that repeats it; the exit code is 0 where nothing was found, 1 where something was or an
// attack could not be made whole, 2 where it was called wrongly. Refused: a table that cannot be read, and
// a millrace that does not train at all.
//
// Every attack runs millrace as real processes in folders of their own, under limits of time, address
// space and resident memory. Whatever was attacked, these are findings: a panic or a dump of
// goroutines, an exit code that the documents do not name, no end within the time limit, more
// memory than the limit, control characters on the terminal, files half-written or lost.
//
// The kinds, in the order in which they run:
//
//	inputs   bad inputs by hand: the exit code, a phrase of the message, and no file changed
//	mutated  inputs that are right but for a byte, a token, a line or a value
//	kills    trainings killed without notice, also while they save, then resumed to the end: the
//	         same bits as an undisturbed run's
//	signals  SIGHUP, SIGINT and SIGTERM at random instants of every verb
//	flips    every bit of a manifest and one in 50 of a stage file: none may open
//	disks    a disk that is full: a message, exit 1, the older checkpoints whole
//	memory   an address space too small for the run: an end by itself
//
// Each kind has a part of the time, and what it leaves goes to those behind it. All of it ends within 20
// minutes. Nothing stays behind, also when it is interrupted, but for what a finding needs to
// be repeated, in the folder --keep.
package main
