package main

import (
	"regexp"
	"slices"
	"strings"
)

var (
	fence = regexp.MustCompile("^ *(```+|~~~+)")
	// item matches with what an item of a list begins.
	item = regexp.MustCompile(`^ *(?:[-*+]|\d+[.)]) +`)
	// apart matches what is no paragraph: headings, tables, quotations, HTML, definitions of links, rules, and
	// lines with tabs.
	apart = regexp.MustCompile(`^ *(?:#+ |\||>|<[a-zA-Z/!]|\[[^\]]+\]: |(?:-{3,}|\*{3,}|={2,})$)|\t`)
	// marker matches a word that means something else at the beginning of a line.
	marker = regexp.MustCompile("^(?:[-+*]|\\d+[.)]|#+|[>|<].*|-{2,}|={2,}|```.*|~~~.*)$")
	// pieces are spans of code, which are not broken, and what is between them.
	pieces = regexp.MustCompile("`[^`]*`|[^`\\s]+|`|\\s+")
)

// wrapMarkdown returns a page with its paragraphs and items of lists wrapped. Only those are changed that have a line
// that is too wide.
func wrapMarkdown(page string) string {
	lines := strings.Split(page, "\n")
	out := slices.Clone(lines[:frontMatter(lines)])
	open := ""   // how the block of code began that a line is in
	content := 0 // where the text of the item of a list begins that a line is in
	for i := len(out); i < len(lines); {
		line := lines[i]
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if mark := fence.FindStringSubmatch(line); mark != nil && (open == "" || strings.HasPrefix(mark[1], open)) {
			if open != "" {
				mark[1] = ""
			}
			open = mark[1]
			out, i = append(out, line), i+1
			continue
		}
		if strings.TrimSpace(line) != "" && indent < content {
			content = 0
		}
		begin := item.FindString(line)
		if open != "" || strings.TrimSpace(line) == "" || apart.MatchString(line) || indent >= content+4 {
			out, i = append(out, line), i+1
			continue
		}
		if begin != "" {
			content = len(begin)
		} else {
			begin = line[:indent]
		}
		end := i + 1
		for end < len(lines) && !breaksHere(lines[end-1]) && goesOn(lines[end]) {
			end++
		}
		out = append(out, wrapBlock(begin, lines[i:end])...)
		i = end
	}
	return strings.Join(out, "\n")
}

// frontMatter returns how many lines at the beginning are for generators of sites.
func frontMatter(lines []string) int {
	if lines[0] != "---" {
		return 0
	}
	return 2 + slices.Index(lines[1:], "---") // 1 if it does not end
}

// goesOn reports whether a line belongs to the paragraph above it.
func goesOn(line string) bool {
	return strings.TrimSpace(line) != "" && !fence.MatchString(line) && !item.MatchString(line) && !apart.MatchString(line)
}

// breaksHere reports whether a line ends with a break that readers see.
func breaksHere(line string) bool {
	return strings.HasSuffix(line, "  ") || strings.HasSuffix(line, `\`)
}

// wrapBlock fills lines with the words of a paragraph, if one of its lines is too wide.
func wrapBlock(begin string, lines []string) (out []string) {
	wide := false
	for _, line := range lines {
		wide = wide || width(line) > most
	}
	if !wide {
		return lines
	}
	hanging := strings.Repeat(" ", len(begin))
	line, empty := begin, true
	for _, word := range splitWords(strings.Join(lines, "\n")[len(begin):]) {
		if !empty && width(line+" "+word) > most && !marker.MatchString(word) {
			out = append(out, line)
			line, empty = hanging, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	if last := lines[len(lines)-1]; strings.HasSuffix(last, "  ") {
		line += "  "
	}
	return append(out, line)
}

// splitWords returns the words of a text. A span of code is one with what stands around it, because programs read it,
// too.
func splitWords(text string) (words []string) {
	word := ""
	for _, piece := range pieces.FindAllString(text, -1) {
		if strings.TrimSpace(piece) == "" {
			words, word = append(words, word), ""
			continue
		}
		if strings.HasPrefix(piece, "`") {
			piece = strings.Join(strings.Fields(piece), " ")
		}
		word += piece
	}
	return slices.DeleteFunc(append(words, word), func(word string) bool { return word == "" })
}
