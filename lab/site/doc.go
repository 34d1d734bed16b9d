// Package site builds the documentation as a static site that needs no network.
//
// In: the repository's folder. The contents (contents.go) list its Markdown pages with titles and groups. Out: a folder
// of HTML pages with the same names, README.md as index.html, and the pictures. A link to another page becomes a link
// to its HTML. A link to any other file of the repository becomes text with the file's path, because a site has no
// repository.
//
// Refused, all together and with file and line: a page of docs/ that the contents do not list, or that is listed but
// missing; a broken link or picture; a link to a heading that does not exist. An output folder with files is refused
// too, unless it contains an earlier site.
//
// If the output folder contains an earlier site, Build removes the pages of that site that are not in the new one. It
// leaves other files alone, unless a page or a picture of the site has the same name.
package site
