package main

import (
	"strings"
	"unicode/utf8"
)

const (
	// most is how wide a line may be, in columns. A tab is as wide as gofmt's.
	most, tab = 120, 8
	// narrow is how wide the text of a comment is at least, however far it is indented.
	narrow = 40
)

// wrapComments returns a Go file with its comments wrapped.
func wrapComments(source string) string {
	lines := strings.Split(source, "\n")
	var out []string
	raw := false // within a raw string, where nothing is a comment
	for i := 0; i < len(lines); {
		indent, _, ok := comment(lines[i])
		if !ok || raw {
			code := lines[i]
			if above, rest, moved := moveTrailing(code, raw); moved {
				out = append(out, wrapGroup(rest[:len(rest)-len(strings.TrimLeft(rest, "\t"))], []string{above})...)
				code = rest
			}
			out = append(out, code)
			raw = raw != (strings.Count(outsideOfText(lines[i], raw), "`")%2 == 1)
			i++
			continue
		}
		var group []string
		for i < len(lines) {
			in, text, ok := comment(lines[i])
			if !ok || in != indent {
				break
			}
			group = append(group, text)
			i++
		}
		out = append(out, wrapGroup(indent, group)...)
	}
	return strings.Join(out, "\n")
}

// comment returns the indent and the text of a line that is nothing but a comment, and no directive.
func comment(line string) (indent, text string, ok bool) {
	trimmed := strings.TrimLeft(line, "\t")
	text, ok = strings.CutPrefix(trimmed, "//")
	if !ok || text != "" && text[0] != ' ' && text[0] != '\t' {
		return "", "", false
	}
	return line[:len(line)-len(trimmed)], text, true
}

// moveTrailing takes a comment that makes a line too wide off its end: it belongs above the line then.
func moveTrailing(line string, raw bool) (above, rest string, moved bool) {
	if raw || width(line) <= most || strings.Contains(line, "//nolint") {
		return "", "", false
	}
	visible := outsideOfText(line, false)
	at := strings.Index(visible, " // ")
	if at < 0 || strings.TrimSpace(visible[:at]) == "" || strings.HasPrefix(strings.TrimSpace(visible), "}") {
		return "", "", false
	}
	return line[at+len(" //"):], strings.TrimRight(line[:at], " "), true
}

// outsideOfText returns a line of code with blanks for what is in string and rune literals and, behind their beginning,
// for what is in comments.
func outsideOfText(line string, raw bool) string {
	out := []byte(line)
	var quote byte
	if raw {
		quote = '`'
	}
	for i := 0; i < len(out); i++ {
		c := out[i]
		switch {
		case quote == 0 && c == '/' && i+1 < len(out) && out[i+1] == '/':
			for j := i + 3; j < len(out); j++ {
				out[j] = '.'
			}
			return string(out)
		case quote == 0 && (c == '"' || c == '`' || c == '\''):
			quote = c
		case quote != 0 && quote != '`' && c == '\\' && i+1 < len(out):
			out[i], out[i+1] = ' ', ' '
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			out[i] = ' '
		}
	}
	return string(out)
}

// wrapGroup wraps the paragraphs of a comment. Each text is what follows "//".
func wrapGroup(indent string, texts []string) (out []string) {
	for i := 0; i < len(texts); {
		first, hanging, ok := shape(texts[i])
		if !ok {
			out = append(out, indent+"//"+texts[i])
			i++
			continue
		}
		end := i + 1
		for end < len(texts) && continues(texts[end], hanging) {
			end++
		}
		out = append(out, wrapParagraph(indent+"//", first, hanging, texts[i:end])...)
		i = end
	}
	return out
}

// shape returns with what the lines of a paragraph begin, its first one and the others, and false for what is left as
// it is.
func shape(text string) (first, hanging string, ok bool) {
	switch body := strings.TrimLeft(text, " "); {
	case text == "" || text[0] != ' ' || body == "" || strings.HasPrefix(body, "\t") || strings.HasPrefix(text, " # "):
		return "", "", false
	case len(text) == len(body)+1:
		return " ", " ", true
	case strings.HasPrefix(text, "   - "):
		return "   - ", "     ", true
	}
	return "", "", false
}

// continues reports whether a line goes on with a paragraph whose lines begin with hanging.
func continues(text, hanging string) bool {
	rest, ok := strings.CutPrefix(text, hanging)
	return ok && rest != "" && rest[0] != ' ' && rest[0] != '\t' && !(hanging == " " && strings.HasPrefix(rest, "# "))
}

// wrapParagraph fills lines with the words of a paragraph, if one of its lines is too wide.
func wrapParagraph(begin, first, hanging string, texts []string) (out []string) {
	wide := false
	var words []string
	for i, text := range texts {
		wide = wide || width(begin+text) > most
		if i == 0 {
			text = strings.TrimPrefix(text, first)
		}
		words = append(words, strings.Fields(text)...)
		out = append(out, begin+texts[i])
	}
	if !wide {
		return out
	}
	out = nil
	room := max(most, width(begin+hanging)+narrow)
	line := begin + strings.TrimSuffix(first, " ")
	started := false
	for _, word := range words {
		if started && width(line+" "+word) > room {
			out = append(out, line)
			line = begin + strings.TrimSuffix(hanging, " ")
		}
		line += " " + word
		started = true
	}
	return append(out, line)
}

// width returns how many columns a line takes.
func width(line string) (columns int) {
	for _, part := range strings.SplitAfter(line, "\t") {
		n := utf8.RuneCountInString(strings.TrimSuffix(part, "\t"))
		columns += n
		if strings.HasSuffix(part, "\t") {
			columns += tab - columns%tab
		}
	}
	return columns
}
