package pt2

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

const maxElements = 4 << 20 // values in one JSON text; each takes at most a few hundred bytes of memory

// decode decodes a JSON member into a value.
func (a *archive) decode(member string, into any) error {
	text, err := a.read(member)
	if err == nil {
		text, err = tidy(text)
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", member, err)
	}
	return nil
}

// tidy quotes the numbers that Python writes but JSON does not have (NaN, Infinity). It refuses a text with too many
// values.
func tidy(text []byte) ([]byte, error) {
	var out []byte
	done, count := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[', ',':
			if count++; count > maxElements {
				return nil, fmt.Errorf("it has more than %d values", maxElements)
			}
		case 'N', 'I', '-':
			for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(text[i:], []byte(word)) {
					out = fmt.Appendf(append(out, text[done:i]...), "%q", word)
					done = i + len(word)
					i = done - 1
					break
				}
			}
		}
	}
	if done == 0 {
		return text, nil
	}
	return append(out, text[done:]...), nil
}

// table is a JSON object in which no key may occur twice.
type table[T any] map[string]T

func (t *table[T]) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	start, err := d.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('{') {
		return fmt.Errorf("%.40s should be an object", text)
	}
	*t = table[T]{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name := key.(string) // the decoder accepts only strings as keys
		if _, twice := (*t)[name]; twice {
			return fmt.Errorf("%.80q is there twice", name)
		}
		var value T
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("%.80q: %w", name, err)
		}
		(*t)[name] = value
	}
	return nil
}

// union is a JSON object with one member, whose name is its kind.
type union struct {
	kind string
	body json.RawMessage
}

func (u *union) UnmarshalJSON(text []byte) error {
	if kind, body, ok := oneMember(text); ok { // a fast path for nearly all unions
		*u = union{kind, bytes.Clone(body)}
		return nil
	}
	var members table[json.RawMessage]
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	*u = union{}
	for kind, body := range members {
		if string(body) == "null" {
			continue
		}
		if u.kind != "" {
			return fmt.Errorf("%.80s should have one member", text)
		}
		*u = union{kind, body}
	}
	return nil
}

// oneMember splits a JSON object with exactly one member, unless its name has an escape or its value is null.
func oneMember(text []byte) (kind string, body []byte, ok bool) {
	inner, ok := bytes.CutPrefix(text, []byte(`{"`))
	if !ok {
		return "", nil, false
	}
	key, rest, ok := bytes.Cut(inner, []byte(`"`))
	rest = bytes.TrimSpace(bytes.TrimSuffix(rest, []byte("}")))
	rest, colon := bytes.CutPrefix(rest, []byte(":"))
	rest = bytes.TrimSpace(rest)
	if !ok || !colon || bytes.ContainsRune(key, '\\') || string(rest) == "null" || !json.Valid(rest) {
		return "", nil, false
	}
	return string(key), rest, true
}

// as decodes the content of a union.
func as[T any](u union) (T, error) {
	var value T
	if err := json.Unmarshal(u.body, &value); err != nil {
		return value, fmt.Errorf("%.40s: %w", u.kind, err)
	}
	return value, nil
}

// number is a float, or Python's word for one that is not finite.
type number float64

func (n *number) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"NaN"`:
		*n = number(math.NaN())
	case `"Infinity"`:
		*n = number(math.Inf(1))
	case `"-Infinity"`:
		*n = number(math.Inf(-1))
	default:
		return json.Unmarshal(text, (*float64)(n))
	}
	return nil
}

// limit is the lower or the upper end of a range. Its value is nil if the range is open at this end. For an open end,
// torch may also write a number whose magnitude is at least maxCount.
type limit struct{ value *int64 }

func (l *limit) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"Infinity"`, `"-Infinity"`, "null":
		return nil
	}
	var end float64
	if err := json.Unmarshal(text, &end); err != nil {
		return err
	}
	if end < maxCount && end > -maxCount {
		whole := int64(end)
		l.value = &whole
	}
	return nil
}
