// Command attack tries to break millrace, and says what broke.
//
// In: the programs bin/millrace and bin/millrace-lab with the native library, and the table of bad inputs in
// testdata/inputs. Out: a line for each kind of attack with the number of tries, and each finding with the command that
// repeats it. The exit code is 0 without findings, 1 with a finding or an incomplete attack, and 2 for wrong usage.
// Refused: a table that cannot be read, and a millrace that cannot train at all.
//
// Almost every attack runs millrace as real processes in their own folders, under limits of time, address space and
// resident memory. In most attacks, these are findings: a panic or a dump of goroutines, an undocumented exit code, a
// process that exceeds its limit of time or memory, control characters on the terminal, and half-written or lost files.
//
// The kinds, in the order in which they run:
//
//	inputs   bad inputs by hand: the exit code, a phrase of the message, and no file changed
//	mutated  valid inputs with one to three random changes of a byte, a token, a line or a value
//	kills    trainings killed without notice, also while they save, then resumed to the end: the
//	         same bits as an undisturbed run's
//	signals  SIGHUP, SIGINT and SIGTERM at random instants of many verbs
//	flips    every bit of a manifest and one in 50 of a stage file: no changed checkpoint
//	         may open; checked in this process
//	disks    a disk that is full: a message, exit 1, the older checkpoints whole
//	memory   an address space too small for the run: the process must end by itself
//
// Each kind has a share of the time. The time that a kind does not use goes to the next kind. All kinds end within 24
// minutes. Nothing stays on the disk, even after an interruption, except what is needed to repeat a finding, in the
// folder --keep.
package main
