package manifest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// mapping is a YAML mapping, in the order of its pairs.
type mapping []pair

type pair struct {
	key   string
	value any // string, int, int64, bool, mapping or list
}

type list []any

// add appends a pair unless its value is empty.
func (m mapping) add(key string, value any) mapping {
	switch v := value.(type) {
	case string:
		if v == "" {
			return m
		}
	case list:
		if len(v) == 0 {
			return m
		}
	case mapping:
		if len(v) == 0 {
			return m
		}
	}
	return append(m, pair{key, value})
}

// document returns mappings as YAML documents, with the comment lines at the head.
func document(comments []string, all ...mapping) string {
	var b strings.Builder
	for _, c := range comments {
		b.WriteString("# " + c + "\n")
	}
	for i, m := range all {
		if i > 0 {
			b.WriteString("---\n")
		}
		m.write(&b, "")
	}
	return b.String()
}

func (m mapping) write(b *strings.Builder, indent string) {
	for i, p := range m {
		if i > 0 {
			b.WriteString(indent)
		}
		b.WriteString(scalar(p.key) + ":")
		writeValue(b, p.value, indent)
	}
}

// writeValue writes a value after its key.
func writeValue(b *strings.Builder, value any, indent string) {
	switch v := value.(type) {
	case mapping:
		if len(v) == 0 {
			b.WriteString(" {}\n")
			return
		}
		b.WriteString("\n" + indent + "  ")
		v.write(b, indent+"  ")
	case list:
		b.WriteString("\n")
		for _, item := range v {
			b.WriteString(indent + "-")
			if m, ok := item.(mapping); ok {
				b.WriteString(" ")
				m.write(b, indent+"  ")
				continue
			}
			b.WriteString(" " + scalar(item) + "\n")
		}
	default:
		b.WriteString(" " + scalar(v) + "\n")
	}
}

// plain matches text that YAML reads as text even without quotes. The exceptions are in `words`.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// words matches words that some YAML readers take for something other than text.
var words = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|y|n|null|nan|inf)$`)

// scalar returns a value on one line. Text that might be read as something else is put in double quotes, as in JSON.
func scalar(value any) string {
	switch v := value.(type) {
	case string:
		if plain.MatchString(v) && !words.MatchString(v) {
			return v
		}
		text, _ := json.Marshal(v) // a string can always be encoded
		return escaped(string(text))
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		return strconv.FormatBool(v)
	}
	panic(fmt.Sprintf("manifest: a %T in a YAML file", value))
}

// escaped escapes the characters of a JSON string that YAML does not allow, and some neighbouring characters.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range text {
		if c >= 0x7f && c < 0xa0 || c >= 0xfe00 && c <= 0xffff {
			fmt.Fprintf(&b, `\u%04x`, c)
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}
