// Package view judges what is known of an installation, and writes it for people and for programs. It asks nobody.
package view

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// The formats of -o. For people there are tables, and wide ones with more columns.
const (
	Table = "table"
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
)

// Formats are all values of -o.
var Formats = []string{Table, Wide, JSON, YAML}

// Look says how to write.
type Look struct {
	// Format is one of Formats.
	Format string
	// Now is the time from which ages are told.
	Now time.Time
	// Colour is for terminals. Width is how many columns the terminal has; 0: it is not known.
	Colour bool
	Width  int
}

// IsFor reports whether people are to read it.
func (l Look) IsFor() bool { return l.Format == Table || l.Format == Wide }

func (l Look) wide() bool { return l.Format == Wide }

// CheckFormat returns an error if format is none of Formats.
func CheckFormat(format string) error {
	if slices.Contains(Formats, format) {
		return nil
	}
	return fmt.Errorf("-o %q: give one of %s", format, strings.Join(Formats, ", "))
}

// Encode writes a value for programs: JSON or YAML.
func Encode(w io.Writer, format string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the answer: %w", err)
	}
	content = append(content, '\n')
	if format == YAML {
		if content, err = yaml.JSONToYAML(content); err != nil {
			return fmt.Errorf("cannot encode the answer: %w", err)
		}
	}
	_, err = w.Write(content)
	return err
}

// page collects lines. What fails to be written is the reader's loss: Flush tells.
type page struct {
	Look
	text strings.Builder
}

func (p *page) line(format string, args ...any) { _, _ = fmt.Fprintf(&p.text, format+"\n", args...) }

// table writes rows of cells in columns, each line after an indentation.
func (p *page) table(indent string, rows [][]string) { p.columns(indent, 3, rows) }

// columns writes rows with so many blanks between columns.
func (p *page) columns(indent string, blanks int, rows [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, blanks, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	for line := range strings.Lines(text.String()) {
		p.line("%s", strings.TrimRight(indent+line, " \n"))
	}
}

func (p *page) flush(w io.Writer) error {
	_, err := io.WriteString(w, p.text.String())
	return err
}

// columns is the width of text for people, unless the terminal has fewer. Commands and tables may be wider.
const columns = 100

// wrap writes a text in lines of at most columns. Each line begins with indent.
func (p *page) wrap(indent, text string) {
	line, columns := indent, columns
	if p.Width > 0 {
		columns = min(columns, p.Width)
	}
	for _, word := range strings.Fields(text) {
		switch {
		case line == indent:
			line += word
		case len(line)+1+len(word) > columns:
			p.line("%s", line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	p.line("%s", line)
}

// bad and good colour a word on a terminal.
func (l Look) bad(word string) string     { return l.coloured("31", word) }
func (l Look) warning(word string) string { return l.coloured("33", word) }

func (l Look) coloured(colour, word string) string {
	if !l.Colour {
		return word
	}
	return "\x1b[" + colour + "m" + word + "\x1b[0m"
}

// ago writes how long ago something was.
func (l Look) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(l.Now.Sub(t)) + " ago"
}

// span writes a duration shortly: 12ms, 1.2s, 3m12s, 3d4h.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return duration.HumanDuration(d)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
