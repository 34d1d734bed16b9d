// Package tokens turns texts into tokens with the byte-pair encodings of published language models.
//
// Input: the name of an encoding (Names) and a text. Output: the tokens, each below Vocabulary. Unknown encodings are
// refused, and so is a text that is not UTF-8; the error tells where its first wrong byte is. Special tokens, such as
// <|endoftext|>, are not recognized: in a text they are encoded like any other text.
package tokens

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"

	"github.com/millrace-ml/millrace/internal/registry"
)

// encoding is a published encoding with its number of tokens, special ones included.
type encoding struct {
	name       string
	is         tokenizer.Encoding
	vocabulary int
}

var encodings = []encoding{
	{"gpt2", tokenizer.R50kBase, 50257}, {"r50k", tokenizer.R50kBase, 50257}, {"p50k", tokenizer.P50kBase, 50281},
	{"cl100k", tokenizer.Cl100kBase, 100277}, {"o200k", tokenizer.O200kBase, 200019},
}

// Names lists the encodings.
func Names() []string {
	var names []string
	for _, e := range encodings {
		names = append(names, e.name)
	}
	return names
}

func find(name string) (encoding, error) {
	for _, e := range encodings {
		if e.name == name {
			return e, nil
		}
	}
	return encoding{}, registry.None("tokenizer", name, Names())
}

// Vocabulary returns how many tokens an encoding has.
func Vocabulary(name string) (int, error) {
	e, err := find(name)
	return e.vocabulary, err
}

// piece is roughly how many bytes of a text are encoded at a time. For each of these bytes the tokenizer needs four
// bytes of memory.
const piece = 1 << 20

// Encode returns the tokens of a text.
func Encode(name string, text []byte) ([]uint32, error) {
	e, err := find(name)
	if err != nil {
		return nil, err
	}
	codec, err := tokenizer.Get(e.is)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", name, err)
	}
	if at := invalid(text); at >= 0 {
		return nil, fmt.Errorf("byte %d is %#02x, and the text no UTF-8 there; convert it, or leave the tokenizer out for "+
			"a text of bytes", at, text[at])
	}
	return encode(codec, text, piece)
}

// invalid returns the index of the first byte that is not UTF-8, or -1.
func invalid(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	at := 0
	for {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// The tokenizer skips the byte 0x7f, because its patterns of words do not match it (v0.10.0). Therefore encode replaces
// this byte, `del`, by `like`, a control character that the patterns match. Each of the two characters is a single
// token, has the same number in all encodings, and is part of no other token.
const (
	del, delToken   = 0x7f, 221
	like, likeToken = 0x01, 189
)

func encode(codec tokenizer.Codec, text []byte, piece int) ([]uint32, error) {
	all := make([]uint32, 0, len(text)/3)
	for len(text) > 0 {
		n := apart(text, piece)
		ids, _, err := codec.Encode(string(bytes.ReplaceAll(text[:n], []byte{del}, []byte{like})))
		if err != nil {
			return nil, err
		}
		at := 0 // after the last `del` or `like` that was found
		for _, id := range ids {
			if id == likeToken {
				at += bytes.IndexAny(text[at:n], string([]byte{del, like}))
				if text[at] == del {
					id = delToken
				}
				at++
			}
			all = append(all, uint32(id))
		}
		text = text[n:]
	}
	return all, nil
}

// apart returns the first index from `at` on where a text can be cut without cutting a token. It is the index of a
// space between two letters, or the end of the text. In each encoding such a space begins the first token of the next
// word, so no token has both the space and the letter before it.
func apart(text []byte, at int) int {
	for i := max(at, 1); i+1 < len(text); i++ {
		if text[i] == ' ' && letter(text[i-1]) && letter(text[i+1]) {
			return i
		}
	}
	return len(text)
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
