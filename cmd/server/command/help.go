package command

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// helpWidth is how many columns help has, unless the terminal has fewer.
	helpWidth = 100
	// flagWidth is how many columns the names of flags have. What a longer one does is below it.
	flagWidth = 30
	// allFlags is the flag of commands that have too many others for one screen.
	allFlags = "help-all"
)

// The groups of commands, as help lists them.
const (
	groupLook    = "look"
	groupUse     = "use"
	groupRun     = "run"
	groupOperate = "operate"
)

var groups = []*cobra.Group{
	{ID: groupLook, Title: "See how a shard is doing:"},
	{ID: groupUse, Title: "Use it:"},
	{ID: groupRun, Title: "Run servers:"},
	{ID: groupOperate, Title: "Operate them:"},
}

// connection are flags that say which server a command asks. They are listed after all others.
var connection = []string{"context", "kubeconfig", "server"}

// section is a part of help with flags.
type section struct {
	title string
	flags *pflag.FlagSet
}

// sections returns the flags of a command, as help lists them.
func sections(cmd *cobra.Command) []section {
	own, where := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.NonInheritedFlags() // adds --help
	for _, set := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			if slices.Contains(connection, f.Name) {
				where.AddFlag(f)
			} else {
				own.AddFlag(f)
			}
		})
	}
	return []section{{"Flags", own}, {"Which server to ask", where}}
}

// only returns those of the flags that have one of the names.
func only(flags *pflag.FlagSet, names []string) *pflag.FlagSet {
	out := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range names {
		out.AddFlag(flags.Lookup(name))
	}
	return out
}

// abridge has the help of a command list those flags that most users need, and --help-all all of them, in sections.
func abridge(cmd *cobra.Command, first []string, all []section) {
	var everything bool
	cmd.Flags().BoolVar(&everything, allFlags, false, "Show all flags.")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if everything {
			return printHelp(cmd, cmd.OutOrStdout(), all)
		}
		return run(cmd, args)
	}
	abridged := cmd
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if cmd != abridged { // one of its commands
			_ = printHelp(cmd, cmd.OutOrStdout(), sections(cmd))
			return
		}
		title := fmt.Sprintf("The flags that most need (all: %s --%s)", cmd.CommandPath(), allFlags)
		_ = printHelp(cmd, cmd.OutOrStdout(), []section{{title, only(cmd.Flags(), first)}})
	})
}

// printHelp writes the help of a command. It fits a screen unless sections are long.
func printHelp(cmd *cobra.Command, to io.Writer, flags []section) error {
	h := &help{width: helpWidth}
	if width := widthOf(to); width > 0 {
		h.width = min(width, helpWidth)
	}
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	h.text(about)
	h.line("")
	h.line("Usage:")
	if cmd.Runnable() {
		h.line("  %s", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		h.line("  %s <command>", cmd.CommandPath())
	}
	if cmd.HasExample() {
		h.line("")
		h.line("Examples:")
		h.line("%s", cmd.Example)
	}
	h.commands(cmd)
	for _, s := range flags {
		h.flags(s)
	}
	_, err := io.WriteString(to, h.String())
	return err
}

// help is written line by line.
type help struct {
	strings.Builder
	width int
}

func (h *help) line(format string, args ...any) { _, _ = fmt.Fprintf(h, format+"\n", args...) }

// text writes paragraphs anew for the width. Lines that are indented are not paragraphs.
func (h *help) text(text string) {
	paragraph := ""
	end := func() {
		if paragraph != "" {
			h.beside("", paragraph)
			paragraph = ""
		}
	}
	for line := range strings.Lines(text) {
		switch line = strings.TrimRight(line, "\n"); {
		case line == "":
			end()
			h.line("")
		case strings.HasPrefix(line, " "):
			end()
			name, does, _ := strings.Cut(strings.TrimLeft(line, " "), "   ")
			h.beside(fmt.Sprintf("  %-10s ", name), does)
		default:
			paragraph += " " + line
		}
	}
	end()
}

// beside writes a text beside a name, in lines that are not too wide.
func (h *help) beside(name, text string) {
	line, indent := name, strings.Repeat(" ", len(name))
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) > h.width && line != indent {
			h.line("%s", strings.TrimRight(line, " "))
			line = indent
		}
		line += word + " "
	}
	h.line("%s", strings.TrimRight(line, " "))
}

// commands lists the commands of a command, in their groups if it has any.
func (h *help) commands(cmd *cobra.Command) {
	width := 0
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			width = max(width, len(c.Name()))
		}
	}
	list := func(title, group string) {
		for _, c := range cmd.Commands() {
			if !c.IsAvailableCommand() && c.Name() != "help" || c.GroupID != group {
				continue
			}
			if title != "" {
				h.line("")
				h.line("%s", title)
				title = ""
			}
			h.beside(fmt.Sprintf("  %-*s  ", width, c.Name()), c.Short)
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	title := "Commands:"
	if len(cmd.Groups()) > 0 {
		title = "Besides:"
	}
	list(title, "")
}

// flags lists flags, unless there is none that users see.
func (h *help) flags(s section) {
	if !s.flags.HasAvailableFlags() {
		return
	}
	width := 0
	var names, texts []string
	s.flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		name, text := flagHelp(f)
		if names, texts = append(names, name), append(texts, text); len(name) <= flagWidth {
			width = max(width, len(name))
		}
	})
	h.line("")
	h.line("%s:", s.title)
	for i, name := range names {
		if len(name) > width {
			h.line("  %s", name)
			name = ""
		}
		h.beside(fmt.Sprintf("  %-*s  ", width, name), texts[i])
	}
}

// flagHelp returns how a flag is given, and what it does.
func flagHelp(f *pflag.Flag) (name, text string) {
	kind, text := pflag.UnquoteUsage(f)
	name = "    --" + f.Name
	if f.Shorthand != "" {
		name = fmt.Sprintf("-%s, --%s", f.Shorthand, f.Name)
	}
	if kind != "" {
		name += " " + kind
	}
	switch {
	case f.Name == "help":
		text = "Show this."
	case f.Name == "version":
		text = "Print the version."
	case f.DefValue == "" || f.DefValue == "[]" || f.DefValue == "false" || f.DefValue == "0" || f.DefValue == "0s":
	case f.Value.Type() == "string":
		text += fmt.Sprintf(" (default %q)", f.DefValue)
	default:
		text += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	return name, text
}
