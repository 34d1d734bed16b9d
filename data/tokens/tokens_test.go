package tokens

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
	"pgregory.net/rapid"
)

// TestTokensThatArePublished: OpenAI's cookbook prints the expected tokens of most texts (How to count tokens with
// tiktoken). "Hello world" is the usual first example of GPT-2.
func TestTokensThatArePublished(t *testing.T) {
	for text, want := range map[string]map[string][]uint32{
		"Hello world": {"gpt2": {15496, 995}},
		"antidisestablishmentarianism": {
			"r50k":   {415, 29207, 44390, 3699, 1042},
			"p50k":   {415, 29207, 44390, 3699, 1042},
			"cl100k": {519, 85342, 34500, 479, 8997, 2191},
			"o200k":  {493, 129901, 376, 160388, 21203, 2367},
		},
		"2 + 2 = 4": {
			"gpt2":   {17, 1343, 362, 796, 604},
			"p50k":   {17, 1343, 362, 796, 604},
			"cl100k": {17, 489, 220, 17, 284, 220, 19},
			"o200k":  {17, 659, 220, 17, 314, 220, 19},
		},
		"お誕生日おめでとう": {
			"r50k":   {2515, 232, 45739, 243, 37955, 33768, 98, 2515, 232, 1792, 223, 30640, 30201, 29557},
			"p50k":   {2515, 232, 45739, 243, 37955, 33768, 98, 2515, 232, 1792, 223, 30640, 30201, 29557},
			"cl100k": {33334, 45918, 243, 21990, 9080, 33334, 62004, 16556, 78699},
			"o200k":  {8930, 9697, 243, 128225, 8930, 17693, 4344, 48669},
		},
		"tiktoken is great!": {"cl100k": {83, 1609, 5963, 374, 2294, 0}},
		"<|endoftext|>":      {"gpt2": {27, 91, 437, 1659, 5239, 91, 29}},
		"":                   {"gpt2": {}},
		"a\x7f\x01\x7f b":    {"gpt2": {64, 221, 189, 221, 275}, "o200k": {64, 221, 189, 221, 287}},
	} {
		for name, ids := range want {
			got, err := Encode(name, []byte(text))
			if err != nil || !slices.Equal(got, ids) {
				t.Errorf("%q is %v in %s, want %v, %v", text, got, name, ids, err)
			}
		}
	}
}

// TestPiecesAreTheWhole: a text encoded in pieces has the same tokens as the whole text. All tokens are below the
// vocabulary, and they decode to the text.
func TestPiecesAreTheWhole(t *testing.T) {
	for _, e := range encodings[1:] {
		codec, err := tokenizer.Get(e.is)
		if err != nil {
			t.Fatal(err)
		}
		parts := []string{"a", "Z", "the", "I'll", "don't", " ", "  ", "\n", "\n\n", "\r\n", "\t", ".", "/", "...", "7",
			"1234", "é", "ß", "語", "\u0301", "🙂", "_", "\x7f", "\x01", "'s", "'S", "\u00a0", "word", "Word", "WORD"}
		rapid.Check(t, func(r *rapid.T) {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 60).Draw(r, "text"), "")
			whole, err := encode(codec, []byte(text), len(text)+1)
			if err != nil {
				r.Fatal(err)
			}
			pieces, err := encode(codec, []byte(text), rapid.IntRange(0, 8).Draw(r, "piece"))
			if err != nil || !slices.Equal(whole, pieces) {
				r.Fatalf("%s: %v in pieces, %v as a whole, %v", e.name, pieces, whole, err)
			}
			var ids []uint
			for _, id := range whole {
				if int(id) >= e.vocabulary {
					r.Fatalf("%s: token %d of %d", e.name, id, e.vocabulary)
				}
				ids = append(ids, uint(id))
			}
			if back, err := codec.Decode(ids); err != nil || back != text {
				r.Fatalf("%s: %q comes back as %q, %v", e.name, text, back, err)
			}
		})
	}
}

func TestTextsThatAreNone(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"gpt3", "a", `there is no tokenizer "gpt3"; did you mean gpt2? there are gpt2, r50k, p50k, cl100k, o200k`},
		{"gpt2", "a\xffb", "byte 1 is 0xff, and the text no UTF-8 there"},
		{"o200k", "語\xe8\xaa", "byte 3 is 0xe8"},
	} {
		if _, err := Encode(c.name, []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want it to say %q", err, c.want)
		}
	}
	if n, err := Vocabulary("gpt2"); n != 50257 || err != nil {
		t.Errorf("%d tokens, %v", n, err)
	}
	if _, err := Vocabulary(""); err == nil {
		t.Error("a tokenizer without a name has a vocabulary")
	}
}

func BenchmarkEncode(b *testing.B) {
	text := []byte(strings.Repeat("It was the best of times, it was the worst of times; call me Ishmael, 1851.\n", 66000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Encode("gpt2", text); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzEncode: any text can be decoded from its tokens, whether they were made in pieces or from the whole text. Text
// that is not UTF-8 is refused.
func FuzzEncode(f *testing.F) {
	f.Add([]byte("Hello world, it's 2026\n\n  again"), uint8(3))
	f.Add([]byte("a\xff"), uint8(0))
	codecs := map[string]tokenizer.Codec{}
	for _, e := range encodings[1:] {
		codec, err := tokenizer.Get(e.is)
		if err != nil {
			f.Fatal(err)
		}
		codecs[e.name] = codec
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint8) {
		for name, codec := range codecs {
			whole, err := Encode(name, text)
			if !utf8.Valid(text) {
				if err == nil {
					t.Fatalf("%q is no UTF-8 and has tokens", text)
				}
				continue
			}
			pieces, err2 := encode(codec, text, int(piece))
			if err != nil || err2 != nil || !slices.Equal(whole, pieces) {
				t.Fatalf("%s: %q is %v, in pieces %v, %v, %v", name, text, whole, pieces, err, err2)
			}
			ids := make([]uint, len(whole))
			for i, id := range whole {
				ids[i] = uint(id)
			}
			if back, err := codec.Decode(ids); err != nil || back != string(text) {
				t.Fatalf("%s: %q comes back as %q, %v", name, text, back, err)
			}
		}
	})
}
