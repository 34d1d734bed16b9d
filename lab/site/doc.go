// Package site builds the documentation as a static site that needs no network.
//
// In: the repository's folder, whose Markdown pages the contents (contents.go) list, with a title and a group each.
// Out: a folder of HTML pages under the pages' own names, README.md as index.html, with the pictures that they show.
// A link to another page leads to its HTML; a link to any other file of the repository becomes a word that says where
// it is, since a site has no repository.
//
// Refused, all at once and with file and line: a page of docs/ that the contents do not list, or that they list and
// is not there; a link or picture that leads nowhere; a heading that a link names and no page has.
//
// Its driver gives a folder that does not exist yet or that holds an earlier site; files of others are left alone.
package site
